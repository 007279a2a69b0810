"""The scheme `reach`: subset routing (paper C), corrected, on any overlay that routes keys."""

from meetpoint.schemes.reach.ids import (
    EVERYTHING,
    AttributeIds,
    Duty,
    Ids,
    SignatureIds,
    Tree,
    head_point,
    is_required,
    is_subset,
    parts,
    tree_of,
)
from meetpoint.schemes.reach.messages import MESSAGES
from meetpoint.schemes.reach.scheme import Reach, ReachSettings, dimensions_of

__all__ = [
    "EVERYTHING",
    "MESSAGES",
    "AttributeIds",
    "Duty",
    "Ids",
    "Reach",
    "ReachSettings",
    "SignatureIds",
    "Tree",
    "dimensions_of",
    "head_point",
    "is_required",
    "is_subset",
    "parts",
    "tree_of",
]
