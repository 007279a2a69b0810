"""Chord, with the corrections of Pamela Zave: `docs/chord.md` has the protocol, its invariant and its limits."""

from meetpoint.overlays.chord.chord import Chord
from meetpoint.overlays.chord.messages import MESSAGES
from meetpoint.overlays.chord.routing import ChordView
from meetpoint.overlays.chord.rules import ChordSettings

__all__ = ["MESSAGES", "Chord", "ChordSettings", "ChordView"]
