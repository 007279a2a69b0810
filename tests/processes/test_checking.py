"""The checker of runs under faults, on logs made by hand: it accepts what is right and sees each kind of failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes.checking import DUPLICATE_WINDOW_NS, Verdict, judge

SECOND = 1_000_000_000


class Logs:
    """Two publishers, one subscription to prices above 10; an entry a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.now = 0
        self.events: dict[str, dict[str, Any]] = {}
        self.log("subscribe", name="high", filter="price > 10")
        self.log("subscribed", name="high")

    def log(self, kind: str, file: str = "all", **entry: Any) -> None:
        self.now += SECOND
        with (self._folder / f"{file}.jsonl").open("a") as out:
            out.write(json.dumps({"kind": kind, "at": self.now, **entry}) + "\n")

    def ask(self, id_: str, number: int, price: int = 20, publisher: str = "p", **more: Any) -> None:
        self.events[id_] = {"publisher": publisher, "number": number, "attributes": {"price": price}}
        self.log("asked", id=id_, **self.events[id_], **more)

    def publish(self, id_: str, number: int, price: int = 20, publisher: str = "p") -> None:
        self.ask(id_, number, price, publisher)
        self.log("acknowledged", id=id_)

    def deliver(self, id_: str, name: str = "high", redelivered: bool = False, **other: Any) -> None:
        self.log("delivered", name=name, id=id_, redelivered=redelivered, **{**self.events.get(id_, _STRANGE), **other})

    def judge(self) -> Verdict:
        return judge(self._folder)


_STRANGE = {"publisher": "p", "number": 99, "attributes": {"price": 20}}


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def counts(verdict: Verdict) -> tuple[int, int, int, int]:
    return len(verdict.lost), len(verdict.unexpected), len(verdict.inverted), len(verdict.duplicate)


def test_a_run_that_is_right(logs: Logs) -> None:
    logs.publish("a", 1)
    logs.publish("b", 2, price=5)
    logs.publish("c", 3)
    logs.deliver("a")
    logs.deliver("a", redelivered=True)
    logs.deliver("c")
    verdict = logs.judge()
    assert counts(verdict) == (0, 0, 0, 0)
    assert verdict.is_good
    assert (verdict.asked, verdict.acknowledged, verdict.expected, verdict.delivered) == (3, 3, 2, 3)
    assert verdict.redelivered == 1


def test_what_was_acknowledged_and_never_came_is_lost(logs: Logs) -> None:
    logs.publish("a", 1)
    verdict = logs.judge()
    assert counts(verdict) == (1, 0, 0, 0)
    assert not verdict.is_good
    assert "a, number 1 of p" in verdict.lost[0]
    assert "lost: a, number 1 of p" in verdict.told()


def test_what_was_not_acknowledged_may_come_or_not(logs: Logs) -> None:
    logs.ask("a", 1)
    logs.ask("b", 2)
    logs.log("failed", id="b", reason="no broker is there")
    logs.ask("c", 3)
    logs.deliver("c")
    verdict = logs.judge()
    assert verdict.is_good
    assert (verdict.acknowledged, verdict.failed, verdict.unanswered, verdict.expected) == (0, 1, 2, 0)


def test_events_from_before_the_subscription_was_acknowledged_may_come_or_not(logs: Logs) -> None:
    logs.publish("a", 1, price=1)
    logs.log("subscribe", name="low", filter="price < 10")
    logs.publish("b", 2, price=2)
    logs.log("subscribed", name="low")
    logs.publish("c", 3, price=3)
    logs.deliver("b", name="low")
    verdict = logs.judge()
    assert counts(verdict) == (1, 0, 0, 0)
    assert verdict.lost[0].startswith("c,")


def test_a_dead_letter_counts_as_delivered(logs: Logs) -> None:
    logs.publish("a", 1)
    logs.log("dead", name="high", id="a")
    verdict = logs.judge()
    assert verdict.is_good
    assert verdict.dead == 1


@pytest.mark.parametrize(
    ("id_", "other", "wrong"),
    [
        ("x", {}, "never published"),
        ("low", {}, "does not match"),
        ("a", {"attributes": {"price": 21}}, "was published with"),
        ("a", {"number": 2}, "number 2 of p"),
        ("a", {"name": "nobody"}, "nobody had subscribed"),
    ],
)
def test_what_should_not_have_come_is_unexpected(logs: Logs, id_: str, other: dict[str, Any], wrong: str) -> None:
    logs.publish("a", 1)
    logs.publish("low", 2, price=5)
    logs.deliver("a")
    logs.deliver(id_, **{"redelivered": True, **other})
    verdict = logs.judge()
    assert counts(verdict) == (0, 1, 0, 0)
    assert wrong in verdict.unexpected[0]


def test_what_comes_before_it_was_published_is_unexpected(logs: Logs) -> None:
    logs.events["a"] = {"publisher": "p", "number": 1, "attributes": {"price": 20}}
    logs.deliver("a")
    logs.publish("a", 1)
    assert counts(logs.judge())[1] == 1


def test_a_later_event_first_is_an_inversion(logs: Logs) -> None:
    logs.publish("a", 1)
    logs.publish("b", 2)
    logs.deliver("b")
    logs.deliver("a")
    verdict = logs.judge()
    assert counts(verdict) == (0, 0, 1, 0)
    assert "a, number 1 of p, came to high" in verdict.inverted[0]


def test_order_is_by_publisher_and_by_subscription_and_without_redeliveries(logs: Logs) -> None:
    logs.log("subscribe", name="any", filter="price > 0")
    logs.log("subscribed", name="any")
    logs.publish("a", 1)
    logs.publish("b", 2)
    logs.publish("other", 1, publisher="q")
    for id_ in ("a", "b", "other"):
        logs.deliver(id_)
    logs.deliver("a", redelivered=True)
    logs.deliver("a", name="any")
    logs.deliver("other", name="any")
    logs.deliver("b", name="any", redelivered=True)
    assert logs.judge().is_good


def test_a_repeat_without_a_mark_is_a_duplicate(logs: Logs) -> None:
    logs.publish("a", 1)
    logs.deliver("a")
    logs.deliver("a")
    assert counts(logs.judge()) == (0, 0, 0, 1)


def test_an_unmarked_one_after_a_marked_one_is_a_duplicate_too(logs: Logs) -> None:
    logs.publish("a", 1)
    logs.deliver("a", redelivered=True)
    logs.deliver("a")
    assert counts(logs.judge()) == (0, 0, 0, 1)


def test_a_repeat_after_the_window_is_none(logs: Logs) -> None:
    logs.publish("a", 1)
    logs.deliver("a")
    logs.now += DUPLICATE_WINDOW_NS
    logs.deliver("a")
    assert logs.judge().is_good


def test_kills_with_work_in_flight_are_counted(logs: Logs) -> None:
    logs.log("at", publisher="p", broker="one")
    logs.log("fault", what="kill", brokers=["one"])  # nothing was asked for yet
    logs.ask("a", 1)
    logs.log("fault", what="kill", brokers=["one"])  # it was asked of an earlier life
    logs.log("at", publisher="p", broker="one")
    logs.log("fault", what="stop", brokers=["one"])
    logs.log("fault", what="kill two", brokers=["two", "three"])  # they have nothing to answer
    logs.log("fault", what="kill all", brokers=["one", "two"])
    logs.log("at", publisher="p", broker="two")
    logs.log("fault", what="kill", brokers=["one"])  # what it was asked is elsewhere by now
    logs.log("acknowledged", id="a")
    logs.ask("b", 2)
    logs.log("acknowledged", id="b")
    logs.log("fault", what="kill", brokers=["two"])  # it has answered
    logs.deliver("a")
    logs.deliver("b")
    verdict = logs.judge()
    assert (verdict.kills, verdict.kills_in_flight) == (6, 1)
    assert not verdict.kills_are_fair
    assert verdict.faults == {"kill": 4, "kill two": 1, "kill all": 1, "stop": 1}


def test_a_torn_last_line_is_left_out_and_any_other_is_not_trusted(logs: Logs, tmp_path: Path) -> None:
    logs.publish("a", 1)
    logs.deliver("a")
    with (tmp_path / "all.jsonl").open("a") as out:
        out.write('{"kind": "asked", "id"')
    assert logs.judge().is_good
    with (tmp_path / "all.jsonl").open("a") as out:
        out.write("\n")
    with pytest.raises(ValueError, match=r"all.jsonl:6: is no JSON, and not the last line"):
        logs.judge()


def test_ids_that_are_not_unique_are_no_basis(logs: Logs) -> None:
    logs.publish("a", 1)
    logs.ask("a", 2)
    with pytest.raises(ValueError, match="asked for twice"):
        logs.judge()


def test_logs_of_several_processes_are_put_together_by_time(logs: Logs) -> None:
    logs.publish("a", 1)
    logs.publish("b", 2)
    logs.log("delivered", file="z", name="high", id="a", redelivered=False, **logs.events["a"])
    logs.log("delivered", file="c", name="high", id="b", redelivered=False, **logs.events["b"])
    assert logs.judge().is_good
