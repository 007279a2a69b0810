"""Refusals: counted each time, said once a minute per kind and culprit, never more memory than a bound."""

from __future__ import annotations

import logging
from pathlib import Path

import aiohttp
import pytest

from meetpoint.broker.config import Access
from meetpoint.broker.observe.logs import CULPRITS_MAX, KINDS, QUIET_S, Log, Refusals
from meetpoint.broker.observe.metrics import Counts
from meetpoint.security import Rights
from tests.broker.talking import broker, calling, event, run
from tests.security.authorities import TestAuthority


class Said:
    """Refusals whose time a test moves, and the lines that they wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "meetpoint.broker")
        self.counts = Counts()
        self.now = 1_000.0
        self.refusals = Refusals(self.counts, Log(), lambda: self.now)
        self._caplog = caplog

    def lines(self) -> list[str]:
        """Return the lines written since the last call."""
        found = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return found


def test_the_same_refusal_is_said_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    said = Said(caplog)
    for _ in range(5):
        said.refusals.refuse("publish", client="ann", reason="not allowed")
    assert said.counts.refusals["publish"] == 5
    (line,) = said.lines()
    assert line == 'event=refused broker="" kind=publish client=ann reason="not allowed"'


def test_another_kind_and_another_culprit_are_said_too(caplog: pytest.LogCaptureFixture) -> None:
    said = Said(caplog)
    said.refusals.refuse("publish", client="ann")
    said.refusals.refuse("subscribe", client="ann")
    said.refusals.refuse("publish", client="bob")
    said.refusals.refuse("handshake", address="127.0.0.1")
    said.refusals.refuse("handshake", address="127.0.0.2")
    assert len(said.lines()) == 5


def test_when_the_minute_is_over_it_is_said_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    said = Said(caplog)
    for _ in range(4):
        said.refusals.refuse("role", client="ann")
    said.lines()
    said.now += QUIET_S - 0.5
    said.refusals.tick()
    assert said.lines() == []
    said.now += 0.5
    said.refusals.tick()
    (line,) = said.lines()
    assert line == 'event=refused broker="" kind=role culprit=ann more=3 in_s=60'
    said.refusals.refuse("role", client="ann")  # the next minute has begun with that line
    assert said.lines() == []
    said.now += QUIET_S
    said.refusals.tick()
    assert "more=1" in said.lines()[0]


def test_after_a_quiet_minute_it_is_said_at_once_again(caplog: pytest.LogCaptureFixture) -> None:
    said = Said(caplog)
    said.refusals.refuse("role", client="ann")
    said.now += QUIET_S
    said.refusals.tick()
    assert len(said.lines()) == 1
    said.refusals.refuse("role", client="ann")
    assert len(said.lines()) == 1


def test_very_many_culprits_share_a_minute_and_none_goes_uncounted(caplog: pytest.LogCaptureFixture) -> None:
    said = Said(caplog)
    for number in range(CULPRITS_MAX + 500):
        said.refusals.refuse("token_signature", client=f"c{number}" * 1_000)
    assert said.counts.refusals["token_signature"] == CULPRITS_MAX + 500
    lines = said.lines()
    assert len(lines) == CULPRITS_MAX + 1
    assert max(map(len, lines)) < 1_000
    said.now += QUIET_S
    said.refusals.tick()
    assert [line for line in said.lines() if "more=499" in line]


def test_every_kind_is_shown_before_it_happens() -> None:
    counts = Counts()
    Refusals(counts, Log())
    (family,) = [each for each in counts.collect() if each.name == "meetpoint_refusals"]
    assert {sample.labels["kind"]: sample.value for sample in family.samples} == dict.fromkeys(KINDS, 0)
    assert counts.numbers()["refusals"] == 0


def test_an_unknown_kind_is_a_programmers_mistake() -> None:
    with pytest.raises(AssertionError):
        Refusals(Counts(), Log()).refuse("whatever")


def test_a_running_broker_counts_each_and_writes_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = TestAuthority(tmp_path)
    caplog.set_level(logging.INFO, "meetpoint.broker")

    async def main() -> None:
        said = {"access": Access(**authority.access), "admin": "127.0.0.1:0"}
        token = authority.token("ann", tenant="acme", publish=Rights(("x > 100",)))
        async with broker(**said) as one, calling(one.address, token=token) as ann:
            await ann.publish(*[event(number, x=number) for number in range(50)])
            async with calling(one.address, token=token) as again:  # another connection of the same client
                await again.publish(event(51, x=1))
            assert one.counts.refusals["publish"] == 51
            headers = {"Authorization": f"Bearer {authority.token('eve', roles=('observe',))}"}
            url = f"http://{one.admin_address}/metrics"
            async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
                assert 'meetpoint_refusals_total{kind="publish"} 51.0' in await response.text()

    run(main())
    lines = [record.getMessage() for record in caplog.records if "kind=publish" in record.getMessage()]
    assert len(lines) == 1
    assert "client=@acme/ann" in lines[0]
    assert "the token permits publishing only what is x > 100" in lines[0]


def test_without_a_token_the_log_goes_by_the_address(caplog: pytest.LogCaptureFixture) -> None:
    """A name that somebody says is no reason for one more line."""
    caplog.set_level(logging.INFO, "meetpoint.broker")

    async def main() -> None:
        async with broker() as one:
            for number in range(5):
                async with calling(one.address, client=f"c{number}") as client:
                    await client.publish(b"no event")
            assert one.counts.refusals["request"] == 5

    run(main())
    (line,) = [record.getMessage() for record in caplog.records if "kind=request" in record.getMessage()]
    assert "address=127.0.0.1" in line
    assert "name=c0" in line
