"""The cost of tokens: `python -m benchmarks.tokens [--json] [--quick] [--brokers 1]`.

Two networks run at the same time, as in `benchmarks.tls`: one that wants tokens and one that does not. In the first,
clients of two kinds alternate with those of the second: with a tenant and everything permitted, and with a tenant and
permissions that are looked at for each event, when it is published and when it is handed over. Before that the same is
measured alone, in this process, as processor time of a session for an event on its way in, and on its way out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.tls import EVENTS, ROUNDS, SIZES, Compared, Started, compare, open_pair, shown, start, take_turns
from meetpoint.broker import run
from meetpoint.broker.clients.authorization import SessionPolicy
from meetpoint.language import Event, Value
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.security import Issuer, Rights
from meetpoint.security.tokens import Verifier

HOUR_S = 3600.0
ALONE = 5_000
"""Events of one round that go through no network."""
REMEMBERED = 50
"""The events that are read before they are handed over, and remembered, as by a home."""
KINDS = {"tenant": ("*", ""), "tenant and permissions": ("n >= 0", "embargo = TRUE")}
"""The kinds of tokens: a filter of what may be published, and one of what may not."""


class Cell(msgspec.Struct, frozen=True):
    """The measurements of one size of events and one kind of token."""

    brokers: int
    bytes: int
    token: str
    rates: Compared
    work: Compared


def token(issuer: Issuer, kind: str) -> str:
    """Issue a token of a kind, of a tenant of its own."""
    allow, deny = KINDS[kind]
    publish = Rights((allow,), (deny,) if deny else ())
    return issuer.issue("ann", seconds=HOUR_S, tenant=kind, publish=publish, subscribe=Rights((allow,)))


def alone(issuer: Issuer, rounds: int) -> list[str]:
    """Return the costs of each kind for one event, in words, beside reading it, which a home does once in any case."""
    verifier = Verifier(issuer.public_keys, None, issuer.network)
    told = []
    for kind in KINDS:
        policy = SessionPolicy(verifier.read(token(issuer, kind), time.time()))
        for size in SIZES:
            found = [
                _spent(policy, [_event(number * ALONE + n, size) for n in range(ALONE)]) for number in range(rounds)
            ]
            into, out = (1e6 * statistics.median(column) / ALONE for column in zip(*found, strict=True))
            told.append(f"{kind}, {size:,} bytes: {into:.1f} µs of processor time on its way in, {out:.1f} µs out")
    return told


def _spent(policy: SessionPolicy, events: list[bytes]) -> tuple[float, float]:
    """Return seconds for all events on their way in, and on their way out."""
    begun = time.process_time()
    within = [policy.scope.event_within(each) for each in events]
    into = time.process_time() - begun
    out = 0.0
    for first in range(0, ALONE, REMEMBERED):
        some = within[first : first + REMEMBERED]
        read = [attributes_of(each) for each in some]
        begun = time.process_time()
        for each in read:
            policy.permit.why_not_publish(each)
        halfway = time.process_time()
        for content in some:
            policy.why_not_deliver(content)
            policy.event_outside(content)
        into += halfway - begun
        out += time.process_time() - halfway
    return into, out


def _event(number: int, size: int) -> bytes:
    attributes: dict[str, Value] = {"n": number, "text": "x" * size, "price": 8.3, "symbol": "OTE"}
    return to_msgpack(Event(f"e{number}", "p", number, datetime(2026, 1, 1, tzinfo=UTC), attributes))


async def measure(open_: Started, guarded: Started, issuer: Issuer, events: int, rounds: int) -> list[Cell]:
    """Measure rounds of all sizes."""
    async with AsyncExitStack() as stack:
        pairs = []
        for brokers, shown_ in ((open_, ""), *((guarded, token(issuer, kind)) for kind in KINDS)):
            pairs.append(await open_pair(stack, brokers, "n >= 0", token=shown_))
        cells = []
        for size in SIZES:
            found = await take_turns(pairs, events, size, rounds)
            for place, kind in enumerate(KINDS, 1):
                rates = compare([(each[0][0], each[place][0]) for each in found])
                work = compare([(each[0][1], each[place][1]) for each in found])
                cells.append(Cell(len(open_.addresses), size, kind, rates, work))
        return cells


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object a size and kind")
    parser.add_argument("--quick", action="store_true", help="few events, to see that everything runs")
    parser.add_argument("--brokers", type=int, default=1, help="of each of the two networks")
    told = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="meetpoint-tokens-") as where, ExitStack() as stack:
        folder = Path(where)
        issuer = Issuer.create(folder / "tokens", "meetpoint")
        keys = ["--token-keys", str(issuer.public_keys)]
        open_ = start(stack, folder / "open", told.brokers, lambda name: [])
        guarded = start(stack, folder / "guarded", told.brokers, lambda name: keys)
        events, rounds = (200, 1) if told.quick else (EVENTS, ROUNDS)
        lines = alone(issuer, rounds)
        cells = run(measure(open_, guarded, issuer, events, rounds))
    for line in [] if told.json else lines:
        sys.stdout.write(line + "\n")
    for cell in cells:
        if told.json:
            sys.stdout.write(json.dumps(msgspec.to_builtins(cell)) + "\n")
        else:
            rates, work = shown(cell.rates, "events/s", "tokens"), shown(cell.work, "µs/event", "tokens")
            sys.stdout.write(f"{cell.brokers} brokers, {cell.bytes:,} bytes, {cell.token}: {rates}; {work}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
