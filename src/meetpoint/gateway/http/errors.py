"""What is refused over HTTP, in one shape: `{"error": {"kind", "message", "at"?}}`. Never a stack trace.

`kind` is for programs and counters, `message` says what to do next, `at` is where in the caller's text it went wrong.
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

__all__ = ["ApiError", "Problem", "ProblemIs", "problem_of", "refuse", "unauthorised"]

RETRY_S: Final = 1
"""After how many seconds a client may ask again where brokers could not be reached."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was refused, and why."""

    kind: str
    message: str
    at: int | None = None
    """An offset into the text that was refused, counted from 0."""


class ProblemIs(msgspec.Struct, frozen=True):
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

    def answer(self) -> Response:
        """As it goes to the client."""
        return refuse(self.status, self.kind, self.message, at=self.at, headers=self.headers)


def refuse(
    status: int, kind: str, message: str, *, at: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """A refusal, ready to be sent."""
    body = msgspec.json.encode(ProblemIs(Problem(kind, message, at)))
    return Response(body, status, dict(headers or {}), "application/json")


_HTTP_KINDS: Final = {404: "not_found", 405: "method"}
_HTTP_WORDS: Final = {
    404: "there is nothing at this address; /openapi.json lists what there is",
    405: "this address does not take this method; see the header Allow",
}


def problem_of(error: Exception) -> ApiError | None:
    """What a client is told of an error that is its own, or the network's; None for ours."""
    match error:
        case ApiError():
            return error
        case FilterError():
            return ApiError(422, "filter", str(error), error.start)
        case EventError():
            return ApiError(422, "event", str(error))
        case TokenError():
            return unauthorised(str(error))
        case RefusedError():
            text = str(error)
            return unauthorised(text) if text.startswith("token:") else ApiError(403, "refused", text)
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


def unauthorised(message: str) -> ApiError:
    """Who asks must show a token first."""
    return ApiError(401, "token", message, headers={"WWW-Authenticate": "Bearer"})
