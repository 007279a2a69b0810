"""What can go wrong with a broker because of how it was set up, or of what was asked of it."""

from __future__ import annotations

from meetpoint.errors import MeetpointError

__all__ = ["BrokerError"]


class BrokerError(MeetpointError):
    """A broker was not started, or would not do what it was asked; what to do next is said."""
