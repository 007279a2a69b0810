"""All messages that nodes exchange whatever their overlay and scheme."""

from __future__ import annotations

from typing import Final

from meetpoint.protocol.directory import Sync, Synced
from meetpoint.protocol.hosting import Adopt, Adopted, Confirm, Confirmed
from meetpoint.protocol.locating import Where, WhereIs
from meetpoint.protocol.messages import Message
from meetpoint.protocol.ordering import Watermark, Watermarked
from meetpoint.protocol.safekeeping import Copied, Copy, Fetch, Fetched, Holding, Keep, Kept, Released

__all__ = ["MESSAGES"]

MESSAGES: Final[tuple[type[Message], ...]] = (
    Sync,
    Synced,
    Copy,
    Copied,
    Fetch,
    Fetched,
    Holding,
    Keep,
    Kept,
    Released,
    Adopt,
    Adopted,
    Confirm,
    Confirmed,
    Where,
    WhereIs,
    Watermark,
    Watermarked,
)
