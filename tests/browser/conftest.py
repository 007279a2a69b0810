"""A browser, and a network of `meetpoint up` that it looks at. `make test-browser` says which browser there is.

These tests run by themselves: Playwright keeps an event loop in their thread, in which others could not start theirs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import meetpoint as mp
from tests.ports import reserve_ports

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSER = os.environ.get("MEETPOINT_BROWSER", "")
NOT_RUN = "test_not_run.py"
collect_ignore = [
    each.name for each in Path(__file__).parent.glob("test_*.py") if (each.name == NOT_RUN) == bool(BROWSER)
]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
BROKERS = 5
READY_S = 180.0
STOP_S = 180.0
LOOK_MS = 60_000
"""Within this the page shows what it is waited for."""

ALERTS = {
    "late-jfk": "dep_delay > 60 AND origin = 'JFK'",
    "united": "carrier = 'UA'",
    "nobody": "carrier = 'ZZ' AND distance > 5000",
}
FLIGHTS = [
    {"carrier": carrier, "origin": origin, "dep_delay": delay, "distance": 1000 + delay}
    for carrier in ("UA", "B6", "DL")
    for origin in ("JFK", "EWR")
    for delay in (0, 20, 75, 140)
]
"""24 of them: 8 are of UA, 6 from JFK are late, 2 are both."""


class Site(NamedTuple):
    """A network that runs, and its page."""

    url: str
    at: str
    net: Any
    """A client of it, beside the page."""
    report: Path
    """Where the gateway looks for a report; there is none."""

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def states(self) -> dict[str, str]:
        """Of all brokers, by their port."""
        brokers = self.get("/api/network")["brokers"]
        return {each["address"].rpartition(":")[2]: each["state"] for each in brokers}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("up")
    port = reserve_ports()
    http = port + 40
    report = folder / "report"
    report.mkdir()
    options = ["--brokers", str(BROKERS), "--data", str(folder / "data"), "--port", str(port), "--http", str(http)]
    options += ["--archive", "--report", str(report)]
    with (folder / "out").open("wb") as out:
        up = subprocess.Popen([sys.executable, "-m", "meetpoint.cli", "up", *options], stdout=out, stderr=out)
    try:
        _wait_for(lambda: _is_ready(f"http://127.0.0.1:{http}/readyz"), up, folder / "out")
        with mp.connect_sync(f"mp://127.0.0.1:{port}", client="tests") as net:
            held = [net.subscribe(text, durable=name) for name, text in ALERTS.items()]
            net.publish_many(FLIGHTS)
            yield Site(f"http://127.0.0.1:{http}", f"mp://127.0.0.1:{port}", net, report)
            del held
    finally:
        up.send_signal(signal.SIGINT)
        try:
            up.wait(STOP_S)
        finally:
            up.kill()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """A page of its own, wide, at the network's view; what its scripts complain of fails the test."""
    yield from _opened(browser, site, width=1280, height=900)


@pytest.fixture(scope="module")
def scripts(browser: Browser, site: Site) -> Iterator[Page]:
    """A page whose scripts are called one by one, and which nobody drives."""
    yield from _opened(browser, site, width=1280, height=900)


@pytest.fixture
def phone(browser: Browser, site: Site) -> Iterator[Page]:
    yield from _opened(browser, site, width=360, height=740)


def _opened(browser: Browser, site: Site, *, width: int, height: int) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(LOOK_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.goto(site.url)
    page.locator("#connection[data-state=live]").wait_for()
    yield page
    context.close()
    assert wrong == []


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _wait_for(holds: Callable[[], bool], up: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_S
    while not holds():
        assert up.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)
