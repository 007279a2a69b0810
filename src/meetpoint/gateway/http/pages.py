"""The dashboard's files: one page at `/`, its scripts and styles under `/static/`.

They are read once, when the gateway starts, and served from memory: a request can name only what was there, so that
no path leads out of the folder. Whoever has a file already is told so (`ETag`), and a new version of Meetpoint is seen
at once, since nothing may be used without asking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

__all__ = ["PAGE_HEADERS", "page_routes"]

PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Nothing from elsewhere, nothing inline, no string that becomes markup, and in no other page's frame."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class _File(NamedTuple):
    content: bytes
    type: str
    tag: str


def page_routes() -> list[BaseRoute]:
    """`/` and `/static/…`, for the application's routes."""
    held = dict(_read(files("meetpoint.gateway") / "static", ""))

    async def page(request: Request) -> Response:
        return _answer(request, held["index.html"])

    async def file(request: Request) -> Response:
        found = held.get(request.path_params["path"])
        if found is None:
            raise HTTPException(404)
        return _answer(request, found)

    return [
        Route("/", page, methods=["GET"], include_in_schema=False),
        Route("/static/{path:path}", file, methods=["GET"], include_in_schema=False),
    ]


def _read(folder: Traversable, above: str) -> Iterator[tuple[str, _File]]:
    for each in folder.iterdir():
        name = f"{above}{each.name}"
        if each.is_dir():
            yield from _read(each, f"{name}/")
        elif (kind := _TYPES.get(name[name.rfind(".") :])) is not None:
            content = each.read_bytes()
            yield name, _File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _answer(request: Request, file: _File) -> Response:
    headers = {**PAGE_HEADERS, "ETag": file.tag}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers={**headers, "Content-Type": file.type})
