"""What is said to whoever starts a broker on a store that will not do."""

from __future__ import annotations

from meetpoint.errors import MeetpointError, one_line

__all__ = ["StoreError"]


class StoreError(MeetpointError):
    """A store that cannot be used as it was asked to be: what is wrong with which file, and what to do."""

    def __init__(self, said: str) -> None:
        super().__init__(one_line(said))  # SQLite may quote what is damaged
