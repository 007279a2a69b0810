"""Lists: a conjunction is placed under each of its attributes, and an event collects and counts (papers A and B)."""

from meetpoint.schemes.lists.messages import MESSAGES
from meetpoint.schemes.lists.scheme import Lists, ListsSettings

__all__ = ["MESSAGES", "Lists", "ListsSettings"]
