"""The scheme `dmm`: distributed multidimensional matching (paper D), corrected, on any overlay that routes keys."""

from meetpoint.schemes.dmm.messages import MESSAGES
from meetpoint.schemes.dmm.rules import DmmSettings
from meetpoint.schemes.dmm.scheme import Dmm

__all__ = ["MESSAGES", "Dmm", "DmmSettings"]
