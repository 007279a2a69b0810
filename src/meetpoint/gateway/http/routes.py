"""One table of routes, from which both the application and /openapi.json are made, so that they cannot drift apart.

A handler gets a `Call`: whoever asks has been let in, the query and the body have been read and fit. What a handler
answers must be among the route's `answers`; refusals that any request may meet are added by `openapi`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from meetpoint.client.network import Network
from meetpoint.gateway.connections import Caller, Lease
from meetpoint.gateway.http.bodies import read_json
from meetpoint.gateway.http.errors import ApiError

if TYPE_CHECKING:
    from meetpoint.gateway.gateway import Gateway

__all__ = ["JSON", "Answer", "Body", "Call", "Handler", "Query", "Role", "Route", "answer"]

JSON: Final = "application/json"

Role: TypeAlias = Literal["anyone", "client", "observe", "operate"]
"""Who may ask, where there are tokens: anyone; any client with a token; one with that role in its token."""
Handler: TypeAlias = "Callable[[Call], Awaitable[Response]]"
T = TypeVar("T")


class Query(msgspec.Struct, frozen=True):
    """One parameter of the query. Its type is read from text: `str`, `int`, `bool`, a `Literal`, an `Annotated`."""

    name: str
    type: Any
    description: str
    required: bool = False


class Body(msgspec.Struct, frozen=True):
    """What is sent, by media type. `raw`: the handler reads it, and the types are for /openapi.json alone."""

    types: Mapping[str, Any]
    raw: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What is answered under a status. Without a type, a text or a stream."""

    description: str
    type: Any = None
    media: str = JSON


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one address. A part of the path in braces is `call.path[name]`."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Handler
    summary: str
    answers: Mapping[int, Answer]
    body: Body | None = None
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    """Headers that it looks at, for /openapi.json."""
    role: Role = "client"
    is_stream: bool = False
    """Whether the answer goes on for as long as the client likes: then it has no time limit."""
    description: str = ""


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), JSON)


class Call:
    """One request, let in."""

    def __init__(
        self, gateway: Gateway, request: Request, caller: Caller, query: dict[str, Any], media: str, data: bytes
    ) -> None:
        self.gateway = gateway
        self.request = request
        self.caller = caller
        self.query = query
        """The parameters that were given, read."""
        self.media = media
        """The body's media type, without parameters."""
        self.data = data
        """The body's bytes."""
        self.body: Any = None
        """The body, read, where the route has one and does not read it itself."""

    @property
    def path(self) -> dict[str, str]:
        """The parts of the path in braces."""
        return self.request.path_params

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Lease]:
        """The caller's connection to the network."""
        async with self.gateway.connections.use(self.caller) as lease:
            yield lease

    @asynccontextmanager
    async def net(self) -> AsyncIterator[Network]:
        """The network as the caller may see it."""
        async with self.lease() as lease:
            yield lease.net


async def prepare(gateway: Gateway, route: Route, request: Request) -> Call:
    """Let a request in and read it; ApiError where it is refused."""
    caller = gateway.door.admit(request, route.role)
    query = _read_query(route, request)
    media, data = "", b""
    if route.body is not None:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_binary_event = route.body.raw and "ce-specversion" in request.headers
        if media not in route.body.types and not is_binary_event:
            known = ", ".join(route.body.types)
            raise ApiError(415, "media", f"the content type is {media[:100] or 'missing'}; send {known}")
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":  # a few bytes could be many
            raise ApiError(415, "media", f"the content encoding is {coding[:100]}; send it as it is")
        data = await read_body(request, gateway.settings.limits.body_bytes, gateway.settings.limits.body_s)
    call = Call(gateway, request, caller, query, media, data)
    if route.body is not None and not route.body.raw:
        call.body = read_json(data, route.body.types[media])
    return call


async def read_body(request: Request, bytes_max: int, seconds: float) -> bytes:
    """The body, as long as it is not too long and comes in time."""
    too_long = ApiError(413, "size", f"the body has more than {bytes_max:,} bytes; send less at a time")
    said = request.headers.get("content-length", "0").lstrip("0")
    if len(said) > len(str(bytes_max)) or int(said or "0") > bytes_max:  # the server has seen that it is a number
        raise too_long
    found = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                found += chunk
                if len(found) > bytes_max:
                    raise too_long
    except TimeoutError:
        raise ApiError(408, "slow", f"the body was not there within {seconds:g} s; send it at once") from None
    return bytes(found)


def _read_query(route: Route, request: Request) -> dict[str, Any]:
    known = {query.name: query for query in route.query}
    found: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        query = known.get(name)
        if query is None:
            names = ", ".join(known) or "none"
            raise ApiError(400, "query", f"the parameter {name[:100]!r} is not known here; known: {names}")
        if name in found:
            raise ApiError(400, "query", f"the parameter {name} is given twice; give it once")
        try:
            found[name] = msgspec.convert(text, query.type, strict=False)
        except msgspec.ValidationError as error:
            raise ApiError(400, "query", f"the parameter {name}: {error}") from None
    for query in route.query:
        if query.required and query.name not in found:
            raise ApiError(400, "query", f"the parameter {query.name} is missing: {query.description}")
    return found
