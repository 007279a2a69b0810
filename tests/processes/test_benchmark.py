"""`python -m benchmarks.brokers` at its smallest: what is offered, what is counted, what is told."""

from __future__ import annotations

import json
import shutil
from itertools import islice
from pathlib import Path

import pytest

from benchmarks import brokers
from benchmarks.brokers import GOAL, asked, line, main, ratios
from meetpoint.errors import SetupError
from meetpoint.lab.bench.brokers.cells import Cell, Effort, measure
from meetpoint.lab.bench.brokers.peers import NATS, RabbitMQ
from meetpoint.lab.bench.brokers.servers import find_rabbitmq
from meetpoint.lab.bench.brokers.sides import OfferedLoad, filter_text
from meetpoint.language import parse_filter
from meetpoint.matching.scan import Scan
from tests.tiers import SOAK

TINY = Effort(rate_s=60.0, latency_s=60.0, events_max=100, latency_events_max=50, consumers=2, drain_s=300.0)
"""A number of events ends each phase, rather than time: the number does not depend on how busy the machine is."""


@pytest.mark.parametrize("count", [1, 40, 2000])
def test_what_is_offered_matches_about_one_subscription_whatever_their_number(count: int) -> None:
    offered = OfferedLoad.draw(count, 8, 7)
    assert len(offered.subscriptions) == count
    assert offered.consumers == min(8, count)
    held = [number for consumer in range(offered.consumers) for number, _ in offered.of(consumer)]
    assert sorted(held) == list(range(count))
    scan: Scan[int] = Scan()
    for number, subscription in enumerate(offered.subscriptions):
        scan.add(number, parse_filter(filter_text(subscription)))
    finder = offered.finder()
    matches = []
    events = 300 if SOAK or count < 1000 else 100  # the oracle is slow
    for event in islice(offered.events("test"), events):
        matched = finder.find(event)
        assert sorted(matched) == sorted(scan.match(event))
        matches.append(len(matched))
    assert 0.6 < sum(matches) / events < 1.3


def test_events_are_the_same_each_time_and_others_for_another_purpose() -> None:
    offered = OfferedLoad.draw(10, 2, 7)
    assert list(islice(offered.events("a"), 5)) == list(islice(offered.events("a"), 5))
    assert list(islice(offered.events("a"), 5)) != list(islice(offered.events("b"), 5))


def test_our_brokers_are_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "QUICK", TINY)
    main(["--quick", "--json", "--only", "meetpoint1,20"])
    (cell,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (cell["side"], cell["subscriptions"], cell["wrong"]) == ("meetpoint × 1", 20, "")
    assert 0 < cell["p50_ms"] <= cell["p99_ms"]
    assert cell["events_per_s"] > 0
    assert cell["events"] == TINY.events_max


@pytest.mark.skipif(shutil.which("nats-server") is None, reason="NATS is not installed")
def test_nats_is_measured(tmp_path: Path) -> None:
    cell = measure(NATS(), 20, TINY, tmp_path, 7)
    assert cell.wrong == ""
    assert cell.events_per_s > 0
    assert cell.events == TINY.events_max


def _has_rabbitmq() -> bool:
    try:
        find_rabbitmq()
    except SetupError:
        return False
    return True


@pytest.mark.skipif(not _has_rabbitmq(), reason="RabbitMQ is not installed")
def test_rabbitmq_is_measured(tmp_path: Path) -> None:
    cell = measure(RabbitMQ(), 20, TINY, tmp_path, 7)
    assert cell.wrong == ""
    assert cell.events_per_s > 0
    assert cell.events == TINY.events_max


def test_a_peer_that_is_not_installed_is_left_out_and_it_is_said_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("meetpoint.lab.bench.brokers.servers._RABBITMQ_PLACES", ())
    main(["--quick", "--only", "rabbitmq,nats"])
    told = capsys.readouterr()
    assert (
        "rabbitmq is left out: RabbitMQ is not installed; on Debian and Ubuntu: apt install rabbitmq-server" in told.err
    )
    assert "nats is left out: NATS is not installed; on Debian and Ubuntu: apt install nats-server" in told.err
    assert "sizes are too small to judge goals" in told.out


def test_ratios_are_to_rabbitmq_and_goals_begin_at_ten_thousand() -> None:
    cells = [
        Cell("meetpoint × 1", 100, events_per_s=900),
        Cell("rabbitmq", 100, events_per_s=3000),
        Cell("meetpoint × 1", 10_000, events_per_s=100 * GOAL),
        Cell("meetpoint × 8", 10_000, events_per_s=100 * GOAL - 1),
        Cell("rabbitmq", 10_000, events_per_s=100),
        Cell("nats + matcher", 10_000, events_per_s=9000),
        Cell("meetpoint × 1", 100_000, events_per_s=10, wrong="phase rate: 3 deliveries"),
        Cell("rabbitmq", 100_000, events_per_s=1),
    ]
    found = list(ratios(cells))
    assert [(side, size, met) for side, size, _, met in found] == [
        ("meetpoint × 1", 100, None),
        ("meetpoint × 1", 10_000, True),
        ("meetpoint × 8", 10_000, False),
    ]
    assert found[0][2] == pytest.approx(0.3)
    assert "not measured: phase rate: 3 deliveries" in line(cells[-2])


def test_a_cell_with_something_wrong_ends_the_command_with_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "measure", lambda *_: Cell("nats + matcher", 1, wrong="some did not come"))
    monkeypatch.setattr(brokers, "FINDERS", {})
    with pytest.raises(SystemExit):
        main(["--quick", "--only", "nats,1"])
    assert "some did not come" in capsys.readouterr().out


@pytest.mark.parametrize("only", ["kafka", "meetpoint1,0"])
def test_what_cannot_be_measured_is_refused(only: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        asked(["--only", only])
    assert "--only" in capsys.readouterr().err
