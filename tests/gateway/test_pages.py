"""The dashboard's files as they are served."""

from __future__ import annotations

import asyncio
import re
from importlib.resources import files

import httpx
import pytest
from starlette.applications import Starlette

from meetpoint.gateway.http.pages import page_routes

STATIC = files("meetpoint.gateway") / "static"
SCRIPTS = [
    "api",
    "charts",
    "dom",
    "drawing",
    "filters",
    "journey",
    "layouts",
    "main",
    "mine",
    "theme",
    "values",
    "world",
]


class Client:
    """Asks the application without a socket."""

    def __init__(self) -> None:
        self._transport = httpx.ASGITransport(Starlette(routes=page_routes()))

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://here") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def client() -> Client:
    return Client()


def test_the_page_and_all_it_names_are_served_with_their_types(client: Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    named = set(re.findall(r'(?:href|src)="(static/[^"]+)"', page.text))
    assert {"static/main.js", "static/base.css", "static/icon.svg"} <= named
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    for name in named:
        got = client.get(f"/{name}")
        assert (got.status_code, got.headers["content-type"]) == (200, kinds[name.rpartition(".")[2]]), name


def test_every_script_that_another_imports_is_served(client: Client) -> None:
    waiting, seen = ["main.js"], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        got = client.get(f"/static/{name}")
        assert got.status_code == 200, name
        folder = name.rpartition("/")[0]
        for path in re.findall(r'from "(\.[^"]+)"', got.text):
            parts = [part for part in folder.split("/") if part]
            for part in path.split("/"):
                if part == "..":
                    parts.pop()
                elif part != ".":
                    parts.append(part)
            waiting.append("/".join(parts))
    assert seen >= {f"{name}.js" for name in SCRIPTS if name != "theme"}


def test_the_browser_is_told_to_run_nothing_from_elsewhere_and_nothing_inline(client: Client) -> None:
    for path in ("/", "/static/main.js", "/static/icon.svg"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_no_file_has_inline_code_or_names_another_site(client: Client) -> None:
    page = client.get("/").text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", page)
    for folder in (STATIC, STATIC / "views"):
        for file in folder.iterdir():
            if file.is_file():
                text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
                assert not re.search(
                    r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
                ), file


def test_who_has_a_file_already_is_told_so(client: Client) -> None:
    first = client.get("/static/main.js")
    again = client.get("/static/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/main.js", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path", ["../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "none.js", "", "views", "/etc/passwd"]
)
def test_nothing_else_is_served(client: Client, path: str) -> None:
    assert client.get(f"/static/{path}").status_code == 404
