"""What can go wrong between a client and the brokers."""

from __future__ import annotations

from meetpoint.errors import MeetpointError

__all__ = ["ConnectionLostError", "NetworkError", "RefusedError"]


class NetworkError(MeetpointError):
    """The brokers could not be reached, or did not do what was asked in time."""


class RefusedError(NetworkError):
    """A broker said no, in its own words, and the same would be refused again."""


class ConnectionLostError(NetworkError):
    """A connection broke before the answer came. What was asked may have been done; asking again does no harm."""
