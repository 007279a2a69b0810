"""The scheme `reach`: subset routing (paper C), corrected, on any overlay that routes keys."""

from meetpoint.schemes.reach.ids import AttributeIds, Ids, SignatureIds, is_subset
from meetpoint.schemes.reach.messages import MESSAGES as EVENT_MESSAGES
from meetpoint.schemes.reach.reach import Reach
from meetpoint.schemes.reach.settings import ReachSettings, dimensions_of
from meetpoint.schemes.reach.side_messages import SIDE_MESSAGES
from meetpoint.schemes.reach.subsets import EVERYTHING, Duty, Tree, head_point, is_required, parts, tree_of

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

MESSAGES = (*EVENT_MESSAGES, *SIDE_MESSAGES)
"""What brokers that run it say to each other."""
