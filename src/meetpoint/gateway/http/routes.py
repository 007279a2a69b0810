"""The table of routes, from which both the application and /openapi.json are made, so that they cannot drift apart.

A handler gets a `Call`: its caller is admitted, its query and body are read and valid. A handler's responses must be
among the route's `responses`; `service` adds the refusals that any request may meet. Bodies are strict JSON: any bytes
give a value or an ApiError.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from meetpoint.client.network import Network
from meetpoint.gateway.connections import Caller, Lease
from meetpoint.gateway.http.errors import ApiError

if TYPE_CHECKING:
    from meetpoint.gateway.gateway import Gateway


__all__ = [
    "JSON",
    "Body",
    "Call",
    "Handler",
    "JsonNumber",
    "Parameter",
    "ResponseSpec",
    "Role",
    "Route",
    "check_json",
    "json_response",
    "read_json",
    "read_raw",
    "read_text",
]


JSON: Final = "application/json"

Role: TypeAlias = Literal["anyone", "client", "observe", "operate"]
"""The callers of a route, where there are tokens: anyone; any client with a token; one with that role in its token."""
Handler: TypeAlias = "Callable[[Call], Awaitable[Response]]"
T = TypeVar("T")


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of the query or a header.

    Its type is read from text: `str`, `int`, `bool`, a `Literal`, an `Annotated`.
    """

    name: str
    type: Any
    description: str
    required: bool = False


class Body(msgspec.Struct, frozen=True):
    """The bodies of a request by media type. `raw`: the handler reads it, and the types are only for /openapi.json."""

    types: Mapping[str, Any]
    raw: bool = False


class ResponseSpec(msgspec.Struct, frozen=True):
    """A response under a status; without a type, a text or a stream."""

    description: str
    type: Any = None
    media: str = JSON


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A method of a path. A part of the path in braces is `call.path[name]`."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Handler
    summary: str
    responses: Mapping[int, ResponseSpec]
    body: Body | None = None
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    """Headers that the handler reads, for /openapi.json."""
    role: Role = "client"
    is_stream: bool = False
    """Whether the response goes on for as long as the client likes: then it has no time limit."""
    description: str = ""


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), JSON)


class Call:
    """A request that was admitted."""

    def __init__(
        self, gateway: Gateway, request: Request, caller: Caller, query: dict[str, Any], media: str, data: bytes
    ) -> None:
        self.gateway = gateway
        self.request = request
        self.caller = caller
        self.query = query
        """The given parameters, as their types."""
        self.media = media
        """The body's media type, without parameters."""
        self.data = data
        """The body's bytes."""
        self.body: Any = None
        """The body as a struct, where the route has one and does not read it itself."""

    @property
    def path(self) -> dict[str, str]:
        """The parts of the path in braces."""
        return self.request.path_params

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Lease]:
        """Lend the caller's connection to the network."""
        async with self.gateway.connections.use(self.caller) as lease:
            yield lease

    @asynccontextmanager
    async def net(self) -> AsyncIterator[Network]:
        """Lend the network as the caller may see it."""
        async with self.lease() as lease:
            yield lease.net


async def prepare(gateway: Gateway, route: Route, request: Request) -> Call:
    """Admit and read a request; raise ApiError where it is refused."""
    caller = gateway.access.admit(request, route.role)
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
    """Read the body; raise ApiError where it is too long or too slow."""
    too_long = ApiError(413, "size", f"the body has more than {bytes_max:,} bytes; send less at a time")
    declared = request.headers.get("content-length", "0").lstrip("0")
    if (
        len(declared) > len(str(bytes_max)) or int(declared or "0") > bytes_max
    ):  # the server has seen that it is a number
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


# -- strict JSON -------------------------------------------------------------------------------------------------------


class JsonNumber(str):
    """The text of a number, as it was written."""

    __slots__ = ()


class _DuplicateKeyError(ValueError):
    pass


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    read = dict(pairs)
    if len(read) != len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateKeyError(next(name for name in names if names.count(name) > 1))
    return read


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_int=JsonNumber, parse_float=JsonNumber
)
"""Keeps numbers as text: their type is decided where a schema is known."""
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."
)
"""Matches the escapes of a JSON text, one after another."""


def read_text(data: bytes) -> str:
    """Decode UTF-8; raise ApiError where the bytes are not."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, "json", f"byte {error.start} is not UTF-8; encode the body as UTF-8", error.start) from None


def check_json(data: bytes) -> Any:
    """Parse one JSON value without duplicate keys, with numbers as texts; raise ApiError where it is none."""
    text = read_text(data)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        message = f"the body is not JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        raise ApiError(400, "json", message, error.pos) from None
    except _DuplicateKeyError as error:
        raise ApiError(400, "json", f"the key {str(error)[:100]!r} occurs twice in one object; keep one") from None
    except RecursionError:
        raise ApiError(400, "json", "the body nests too deep; flatten it") from None
    except ValueError as error:
        raise ApiError(400, "json", f"the body is not JSON: {error}") from None
    if (half := _half_of_a_pair(text)) is not None:
        message = f"{text[half : half + 6]} is half of a character; write both halves, or the character itself"
        raise ApiError(400, "json", message, half)
    return value


def _half_of_a_pair(text: str) -> int | None:
    """Return where JSON escapes half of a surrogate pair, or None: no event can hold such a text."""
    if "\\u" not in text:
        return None
    return next((match.start("half") for match in _ESCAPES.finditer(text) if match["half"] is not None), None)


def read_json(data: bytes, kind: type[T]) -> T:
    """Read a body as a struct."""
    check_json(data)
    return read_raw(data, kind)


def read_raw(data: bytes, kind: type[T], what: str = "the body") -> T:
    """Read JSON that was checked before as a type."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ApiError(422, "body", f"{what[:60]} does not fit: {error}; see /openapi.json") from None
