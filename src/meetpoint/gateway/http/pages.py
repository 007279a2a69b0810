"""Static pages: the dashboard at `/` and `/static/`, the experiment report at `/report/`.

The dashboard's files are read once, when the gateway starts, and served from memory: a request can name only what was
there, so that no path leads out of the folder. A browser that has a file already gets 304 (`ETag`); a new version of
Meetpoint shows at once, since a browser must ask each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from meetpoint.gateway.http.errors import error_response

__all__ = ["PAGE_HEADERS", "page_routes", "report_routes"]


PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Allow nothing from elsewhere, nothing inline, no string that becomes markup, and no foreign frame."""

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
    """Return the routes `/` and `/static/…`."""
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


# -- the experiment report ---------------------------------------------------------------------------------------------


_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".csv": "text/csv; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".pdf": "application/pdf",
}
"""The endings that are served, with their content types; scripts are not among them."""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'self'; "
        "base-uri 'none'; form-action 'none'"
    ),
    "Cache-Control": "no-cache",
}
INDEX: Final = "index.html"


def report_routes(folder: str | None) -> list[BaseRoute]:
    """Return the route of the report's files; without a folder it says how to make a report."""
    root = None if folder is None else Path(folder).resolve()

    async def serve(request: Request) -> Response:
        name = request.path_params.get("path", "") or INDEX
        if root is None or not (root / INDEX).is_file():
            words = (
                "there is no experiment report here; make one, and name its folder by --report, if it is not ./report"
            )
            return error_response(404, "report", words)
        file = _file(root, name)
        if file is None:
            return error_response(404, "report", "the report has no such file")
        return FileResponse(file, headers={**_HEADERS, "Content-Type": _KINDS[file.suffix.lower()]})

    return [Route("/report/{path:path}", serve, methods=["GET"])]


def _file(root: Path, name: str) -> Path | None:
    """Return the file of a name if it is inside the folder and may be shown, else None."""
    try:
        file = (root / name).resolve()
        is_there = file.is_relative_to(root) and file.suffix.lower() in _KINDS and file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return file if is_there else None
