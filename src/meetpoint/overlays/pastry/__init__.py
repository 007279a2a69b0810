"""Pastry, with joins after LuPastry and leases: `docs/pastry.md` has the protocol, its invariant and its limits."""

from meetpoint.overlays.pastry.messages import MESSAGES
from meetpoint.overlays.pastry.pastry import Pastry
from meetpoint.overlays.pastry.routing import PastryView
from meetpoint.overlays.pastry.rules import PastrySettings

__all__ = ["MESSAGES", "Pastry", "PastrySettings", "PastryView"]
