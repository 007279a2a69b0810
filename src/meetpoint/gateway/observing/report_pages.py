"""/report/: the pages and pictures of the experiment report, as they lie in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from meetpoint.gateway.http.errors import refuse

__all__ = ["report_routes"]

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
"""What is served, by ending; a script is not among it."""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'self'; "
        "base-uri 'none'; form-action 'none'"
    ),
    "Cache-Control": "no-cache",
}
INDEX: Final = "index.html"


def report_routes(folder: str | None) -> list[BaseRoute]:
    """The files of a folder, if there is one; else why there is nothing."""
    root = None if folder is None else Path(folder).resolve()

    async def serve(request: Request) -> Response:
        name = request.path_params.get("path", "") or INDEX
        if root is None or not (root / INDEX).is_file():
            words = (
                "there is no experiment report here; make one, and name its folder by --report, if it is not ./report"
            )
            return refuse(404, "report", words)
        file = _file(root, name)
        if file is None:
            return refuse(404, "report", "the report has no such file")
        return FileResponse(file, headers={**_HEADERS, "Content-Type": _KINDS[file.suffix.lower()]})

    return [Route("/report/{path:path}", serve, methods=["GET"])]


def _file(root: Path, name: str) -> Path | None:
    """The file of a name, if there is one within the folder that may be shown."""
    try:
        file = (root / name).resolve()
        is_there = file.is_relative_to(root) and file.suffix.lower() in _KINDS and file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return file if is_there else None
