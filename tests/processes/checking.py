"""Whether a run under faults kept its promises, from the logs of its clients alone.

Nothing here is shared with brokers or with the client: logs are read as JSON, and the oracle (`matching.scan`) says
which events a filter accepts. Logs are the files *.jsonl of a folder, each written by one process, a line an entry:

    at             publisher, broker                    a publisher's events go to this broker from now on
    asked          id, publisher, number, attributes    a publisher hands an event over; its numbers count up
    acknowledged   id                                   and was told that it is kept
    failed         id, reason                           and was told that it may or may not be published
    subscribe      name, filter                         a durable subscription was asked for
    subscribed     name                                 and acknowledged
    delivered      name, id, publisher, number, attributes, redelivered
    dead           name, id                             it lies among the dead letters of a subscription
    fault          what, brokers                        something was done to brokers: kill, stop, cut, stall, ...

each with `at`, the nanoseconds of the machine's monotonic clock. The last line of a file may be torn.

- *lost*: acknowledged, accepted by a subscription that was acknowledged before the event was asked for, and neither
  delivered nor dead.
- *unexpected*: delivered, but never asked for, or not as it was, or not accepted by the filter, or to nobody who asked.
- *inverted*: delivered without the mark of a redelivery after a later event of the same publisher, to the same
  subscription; "later" is by the publisher's numbers.
- *duplicate*: delivered again without that mark, within the window in which repeats are suppressed.

A kill came *with work in flight* where, at that moment, a publisher was connected to a broker that was killed, in that
life of it, and had asked for an event that was not acknowledged yet.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from meetpoint.language import parse_filter
from meetpoint.matching.scan import Scan

__all__ = ["Verdict", "judge", "read_logs"]

DUPLICATE_WINDOW_NS = 120 * 1_000_000_000
KILLS = ("kill", "kill two", "kill all")
TOLD_MAX = 20


class Verdict(msgspec.Struct):
    """What was found: sentences for what is wrong, numbers for the rest."""

    lost: list[str] = []
    unexpected: list[str] = []
    inverted: list[str] = []
    duplicate: list[str] = []
    asked: int = 0
    acknowledged: int = 0
    failed: int = 0
    unanswered: int = 0
    expected: int = 0
    delivered: int = 0
    redelivered: int = 0
    dead: int = 0
    kills: int = 0
    kills_in_flight: int = 0
    faults: dict[str, int] = {}
    observed: dict[str, int] = {}
    """What brokers say of themselves, for who looks into it; nothing is judged by it."""

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.unexpected or self.inverted or self.duplicate)

    @property
    def kills_are_fair(self) -> bool:
        """At least half of the kills came while something was unacknowledged."""
        return 2 * self.kills_in_flight >= self.kills

    def told(self) -> str:
        """The verdict for people."""
        lines = [
            f"asked {self.asked}, acknowledged {self.acknowledged}, failed {self.failed}, unanswered {self.unanswered}",
            f"expected {self.expected}, delivered {self.delivered}, redelivered {self.redelivered}, dead {self.dead}",
            f"lost {len(self.lost)}, unexpected {len(self.unexpected)}, order inversions {len(self.inverted)}, "
            f"unmarked duplicates {len(self.duplicate)}",
            f"faults {self.faults}; {self.kills_in_flight} of {self.kills} kills with unacknowledged work in flight",
            *([f"observed {self.observed}"] if self.observed else []),
        ]
        for what in ("lost", "unexpected", "inverted", "duplicate"):
            sentences = getattr(self, what)
            lines += [f"{what}: {sentence}" for sentence in sentences[:TOLD_MAX]]
            if len(sentences) > TOLD_MAX:
                lines.append(f"{what}: and {len(sentences) - TOLD_MAX} more")
        return "\n".join(lines)


class _Event(msgspec.Struct):
    publisher: str
    number: int
    attributes: dict[str, Any]
    asked: int
    acknowledged: int | None = None
    failed: int | None = None


class _Subscription(msgspec.Struct):
    filter: str
    asked: int
    acknowledged: int | None = None


class _Run(msgspec.Struct):
    events: dict[str, _Event] = {}
    subscriptions: dict[str, _Subscription] = {}
    deliveries: list[dict[str, Any]] = []
    dead: set[tuple[str, str]] = set()
    faults: list[dict[str, Any]] = []
    moves: dict[str, list[tuple[int, str]]] = {}


def read_logs(folder: Path) -> list[dict[str, Any]]:
    """All entries, each file's in its order, files by name."""
    entries: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl")):
        entries += _read(path)
    return entries


def _read(path: Path) -> Iterator[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            if number == len(lines):  # torn when its writer was killed
                return
            raise ValueError(f"{path}:{number}: is no JSON, and not the last line; the log cannot be trusted") from None
        yield entry


def judge(folder: Path) -> Verdict:
    """Compare what was acknowledged, what came, and what the oracle says."""
    run = _assemble(read_logs(folder))
    accepted = _accepted(run)
    verdict = Verdict(asked=len(run.events), dead=len(run.dead))
    verdict.acknowledged = sum(event.acknowledged is not None for event in run.events.values())
    verdict.failed = sum(event.failed is not None for event in run.events.values())
    verdict.unanswered = verdict.asked - verdict.acknowledged - verdict.failed
    _judge_deliveries(run, accepted, verdict)
    _judge_losses(run, accepted, verdict)
    _judge_kills(run, verdict)
    return verdict


def _assemble(entries: list[dict[str, Any]]) -> _Run:
    run = _Run()
    later = []
    for entry in entries:
        match entry["kind"]:
            case "asked":
                if entry["id"] in run.events:
                    raise ValueError(f"event {entry['id']} was asked for twice; a publisher's ids are not unique")
                event = _Event(entry["publisher"], entry["number"], entry["attributes"], entry["at"])
                run.events[entry["id"]] = event
            case "at":
                run.moves.setdefault(entry["publisher"], []).append((entry["at"], entry["broker"]))
            case "subscribe":
                if entry["name"] not in run.subscriptions:  # a process that starts again asks for the same
                    run.subscriptions[entry["name"]] = _Subscription(entry["filter"], entry["at"])
            case "delivered":
                run.deliveries.append(entry)
            case "dead":
                run.dead.add((entry["name"], entry["id"]))
            case "fault":
                run.faults.append(entry)
            case _:
                later.append(entry)
    for entry in later:
        match entry["kind"]:
            case "acknowledged":
                run.events[entry["id"]].acknowledged = entry["at"]
            case "failed":
                run.events[entry["id"]].failed = entry["at"]
            case "subscribed":
                subscription = run.subscriptions[entry["name"]]
                if subscription.acknowledged is None:
                    subscription.acknowledged = entry["at"]
            case other:
                raise ValueError(f"a log has an entry of the kind {other!r}, which nobody knows")
    run.deliveries.sort(key=lambda entry: entry["at"])  # stable: one process's entries keep their order
    return run


def _accepted(run: _Run) -> dict[str, set[str]]:
    """By event, the subscriptions whose filter accepts it: what the oracle says."""
    scan: Scan[str] = Scan()
    for name, subscription in run.subscriptions.items():
        scan.add(name, parse_filter(subscription.filter))
    return {id_: set(scan.match(event.attributes)) for id_, event in run.events.items()}


def _judge_deliveries(run: _Run, accepted: dict[str, set[str]], verdict: Verdict) -> None:
    unmarked: dict[tuple[str, str], int] = {}
    came: set[tuple[str, str]] = set()
    highest: dict[tuple[str, str], tuple[int, str]] = {}
    for entry in run.deliveries:
        name, id_, at = entry["name"], entry["id"], entry["at"]
        verdict.delivered += 1
        verdict.redelivered += bool(entry["redelivered"])
        if wrong := _wrong_with(run, accepted, entry):
            verdict.unexpected.append(f"{id_} came to {name} at {at}: {wrong}")
            continue
        key = (name, id_)
        if not entry["redelivered"]:
            _judge_order(entry, highest, verdict)
            if key in came and at - unmarked.get(key, at) <= DUPLICATE_WINDOW_NS:
                verdict.duplicate.append(f"{id_} came to {name} again at {at}, and not marked as redelivered")
            unmarked.setdefault(key, at)
        came.add(key)


def _wrong_with(run: _Run, accepted: dict[str, set[str]], entry: dict[str, Any]) -> str:
    event = run.events.get(entry["id"])
    subscription = run.subscriptions.get(entry["name"])
    if event is None:
        return "it was never published"
    if entry["at"] < event.asked:
        return "it had not been published yet"
    if entry["attributes"] != event.attributes:
        return f"it has the attributes {entry['attributes']}, and was published with {event.attributes}"
    if (entry["publisher"], entry["number"]) != (event.publisher, event.number):
        return f"it says to be number {entry['number']} of {entry['publisher']}"
    if subscription is None or entry["at"] < subscription.asked:
        return "nobody had subscribed under this name"
    if entry["name"] not in accepted[entry["id"]]:
        return f"{event.attributes} does not match {subscription.filter}"
    return ""


def _judge_order(entry: dict[str, Any], highest: dict[tuple[str, str], tuple[int, str]], verdict: Verdict) -> None:
    stream = (entry["name"], entry["publisher"])
    number, before = highest.get(stream, (-1, ""))
    if entry["number"] < number:
        verdict.inverted.append(
            f"{entry['id']}, number {entry['number']} of {entry['publisher']}, came to {entry['name']} at "
            f"{entry['at']} after number {number}, {before}"
        )
    if entry["number"] > number:
        highest[stream] = (entry["number"], entry["id"])


def _judge_losses(run: _Run, accepted: dict[str, set[str]], verdict: Verdict) -> None:
    came = {(entry["name"], entry["id"]) for entry in run.deliveries}
    for id_, event in run.events.items():
        if event.acknowledged is None:
            continue
        for name in sorted(accepted[id_]):
            since = run.subscriptions[name].acknowledged
            if since is None or since >= event.asked:
                continue
            verdict.expected += 1
            if (name, id_) not in came and (name, id_) not in run.dead:
                verdict.lost.append(
                    f"{id_}, number {event.number} of {event.publisher}, asked for at {event.asked} and acknowledged "
                    f"at {event.acknowledged}, never came to {name}"
                )


def _judge_kills(run: _Run, verdict: Verdict) -> None:
    killed: dict[str, int] = {}
    for fault in sorted(run.faults, key=lambda each: each["at"]):
        what, at, brokers = fault["what"], fault["at"], fault.get("brokers", ())
        verdict.faults[what] = verdict.faults.get(what, 0) + 1
        if what not in KILLS:
            continue
        verdict.kills += 1
        verdict.kills_in_flight += any(
            broker in brokers and since > killed.get(broker, 0) and _is_waiting(run, publisher, at)
            for publisher, (since, broker) in _places(run, at).items()
        )
        killed.update(dict.fromkeys(brokers, at))


def _places(run: _Run, time: int) -> dict[str, tuple[int, str]]:
    """Since when each publisher is connected to which broker, at a time."""
    found = {}
    for publisher, moves in run.moves.items():
        if before := bisect_right(moves, (time, "\uffff")):
            found[publisher] = moves[before - 1]
    return found


def _is_waiting(run: _Run, publisher: str, time: int) -> bool:
    """Whether a publisher has asked for an event that is not answered, at a time."""
    return any(
        event.publisher == publisher and event.asked <= time < (event.acknowledged or event.failed or time + 1)
        for event in run.events.values()
    )
