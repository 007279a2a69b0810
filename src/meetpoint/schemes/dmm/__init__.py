"""The scheme `dmm`: distributed multidimensional matching (paper D), corrected, on any overlay that routes keys."""

from meetpoint.schemes.dmm.dmm import Dmm
from meetpoint.schemes.dmm.messages import MESSAGES
from meetpoint.schemes.dmm.settings import DmmSettings

__all__ = ["MESSAGES", "Dmm", "DmmSettings"]
