"""Meet: a conjunction is placed under its most selective key, whole; events visit only keys that are in use."""

from meetpoint.schemes.meet.messages import MESSAGES
from meetpoint.schemes.meet.scheme import Meet, MeetSettings

__all__ = ["MESSAGES", "Meet", "MeetSettings"]
