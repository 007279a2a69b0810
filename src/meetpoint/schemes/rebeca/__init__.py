"""The scheme `rebeca`: filters routed over the Chord graph (paper E), corrected; see `docs/rebeca.md`."""

from meetpoint.schemes.rebeca.messages import MESSAGES
from meetpoint.schemes.rebeca.scheme import Rebeca
from meetpoint.schemes.rebeca.settings import RebecaSettings

__all__ = ["MESSAGES", "Rebeca", "RebecaSettings"]
