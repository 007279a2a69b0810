"""Errors between a client and the brokers."""

from __future__ import annotations

from meetpoint.errors import MeetpointError

__all__ = ["ConnectionLostError", "NetworkError", "RefusedError"]


class NetworkError(MeetpointError):
    """The brokers could not be reached, or did not do what was asked in time."""


class RefusedError(NetworkError):
    """A broker refused a request, with its reason; the same request would be refused again."""


class ConnectionLostError(NetworkError):
    """The connection broke before the answer came. The request may have been done; sending it again does no harm."""
