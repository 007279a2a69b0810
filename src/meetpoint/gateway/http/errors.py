"""Errors over HTTP, in one shape: `{"error": {"kind", "message", "at"?}}`. Never a stack trace.

`kind` is for programs and counters, `message` says what to do next, `at` is the place of the error in the caller's
text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import EventError, FilterError, MeetpointError, one_line
from meetpoint.security.grants import TokenError

__all__ = ["ApiError", "ErrorBody", "Problem", "error_response", "to_api_error", "unauthorized"]

RETRY_S: Final = 1
"""Seconds after which a client may ask again where brokers could not be reached."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason of a refusal."""

    kind: str
    message: str
    at: int | None = None
    """An offset into the text that was refused, counted from 0."""


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every refusal."""

    error: Problem


class ApiError(MeetpointError):
    """A request was refused."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        at: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.kind = kind
        self.message = message
        self.at = at
        self.headers = dict(headers or {})
        super().__init__(status, kind, message)

    def __str__(self) -> str:
        return one_line(self.message)

    def response(self) -> Response:
        return error_response(self.status, self.kind, self.message, at=self.at, headers=self.headers)


def error_response(
    status: int, kind: str, message: str, *, at: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a refusal as a response."""
    body = msgspec.json.encode(ErrorBody(Problem(kind, message, at)))
    return Response(body, status, dict(headers or {}), "application/json")


_HTTP_KINDS: Final = {404: "not_found", 405: "method"}
_HTTP_WORDS: Final = {
    404: "there is nothing at this address; /openapi.json lists what there is",
    405: "this address does not take this method; see the header Allow",
}


def to_api_error(error: Exception) -> ApiError | None:
    """Return what a client is told of an error that is its own or the network's; None for a bug of ours."""
    match error:
        case ApiError():
            return error
        case FilterError():
            return ApiError(422, "filter", str(error), error.start)
        case EventError():
            return ApiError(422, "event", str(error))
        case TokenError():
            return unauthorized(str(error))
        case RefusedError():
            text = str(error)
            return unauthorized(text) if text.startswith("token:") else ApiError(403, "refused", text)
        case NetworkError():
            return ApiError(503, "network", str(error), headers={"Retry-After": str(RETRY_S)})
        case ClientDisconnect():
            return ApiError(400, "gone", "the client went away before it had said everything")
        case HTTPException():
            kind = _HTTP_KINDS.get(error.status_code, "http")
            words = _HTTP_WORDS.get(error.status_code, error.detail)
            return ApiError(error.status_code, kind, words, headers=error.headers)
        case MeetpointError():
            return ApiError(422, "refused", str(error))
    return None


def unauthorized(message: str) -> ApiError:
    """Return the refusal of a request without a valid token."""
    return ApiError(401, "token", message, headers={"WWW-Authenticate": "Bearer"})
