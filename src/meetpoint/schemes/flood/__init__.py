"""Flood: every event to every broker, filters at the home. The baseline for the others."""

from meetpoint.schemes.flood.scheme import MESSAGES, Flood

__all__ = ["MESSAGES", "Flood"]
