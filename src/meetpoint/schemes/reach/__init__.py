"""The pure core of the scheme `reach` (paper C): ids, subset routing, quenching; `docs/reach.md` has what is there."""

from meetpoint.schemes.reach.ids import AttributeIds, Ids, SignatureIds, is_subset
from meetpoint.schemes.reach.interest import Interest
from meetpoint.schemes.reach.subsets import EVERYTHING, Duty, Tree, head_point, is_required, parts, tree_of

__all__ = [
    "EVERYTHING",
    "AttributeIds",
    "Duty",
    "Ids",
    "Interest",
    "SignatureIds",
    "Tree",
    "head_point",
    "is_required",
    "is_subset",
    "parts",
    "tree_of",
]
