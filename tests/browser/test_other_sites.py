"""What a page of another site may not do, tried by a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ASKS = """async ([url, type]) => {
  try {
    const answer = await fetch(url, {
      method: "POST", headers: {"Content-Type": type}, body: '{"attributes": {"stolen": true}}'});
    return answer.status;
  } catch (error) { return "refused"; }
}"""
READS = """async (url) => {
  try { return (await fetch(url)).status } catch (error) { return "refused" }
}"""
OPENS = """(url) => new Promise((done) => {
  const socket = new WebSocket(url);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})"""
FRAMES = """(url) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.onload = () => { try { done(frame.contentDocument ? "own" : "shut") } catch (error) { done("shut") } };
  frame.src = url;
  document.body.append(frame);
})"""


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><p>another site")

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture
def stranger(browser: Browser) -> Iterator[Page]:
    """A page of another origin on the same machine."""
    server = HTTPServer(("127.0.0.1", 0), _Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    yield page
    context.close()
    server.shutdown()
    server.server_close()


def test_another_sites_page_can_neither_publish_nor_read(stranger: Page, site: Site) -> None:
    with site.net.subscribe("stolen") as sub:
        for path in ("/events", "/api/publish"):
            for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
                assert stranger.evaluate(ASKS, [site.url + path, kind]) == "refused"
        site.net.publish({"stolen": True, "by": "nobody"})
        first = next(iter(sub.events(timeout=60)))
        assert first.attributes == {"stolen": True, "by": "nobody"}
        assert list(sub.events(timeout=1)) == []
    assert stranger.evaluate(READS, f"{site.url}/api/network") == "refused"
    assert stranger.evaluate(OPENS, f"{site.url.replace('http', 'ws')}/ws") == "refused"


def test_the_page_cannot_be_framed_by_another_site(stranger: Page, site: Site) -> None:
    said: list[str] = []
    stranger.on("console", lambda message: said.append(message.text))
    stranger.evaluate(FRAMES, site.url)
    assert any("frame" in text.lower() for text in said), said


def test_the_page_itself_may_open_a_socket(page: Page, site: Site) -> None:
    """Else the refusal above would say nothing."""
    assert page.evaluate(OPENS, f"{site.url.replace('http', 'ws')}/ws") == "open"


def test_a_script_that_gets_into_the_page_does_not_run(page: Page) -> None:
    ran = page.evaluate(
        """() => {
          const script = document.createElement("script");
          try { script.append("window.ran = true"); document.body.append(script); } catch {}
          try { document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.ran = true'>") } catch {}
          return new Promise((done) => setTimeout(() => done(window.ran === true), 300));
        }"""
    )
    assert ran is False
