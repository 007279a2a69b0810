"""Flood: every event to every broker, filters at the home. The baseline for the others."""

from meetpoint.schemes.flood.flood import Flood
from meetpoint.schemes.flood.messages import MESSAGES

__all__ = ["MESSAGES", "Flood"]
