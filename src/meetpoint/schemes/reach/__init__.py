"""The scheme `reach`: subset routing (paper C), corrected, on any overlay that routes keys."""

from meetpoint.schemes.reach.messages import MESSAGES
from meetpoint.schemes.reach.scheme import Reach, ReachSettings, dimensions_of

__all__ = ["MESSAGES", "Reach", "ReachSettings", "dimensions_of"]
