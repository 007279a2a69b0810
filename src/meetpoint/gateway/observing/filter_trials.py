"""/api/try and /api/backtest: what a filter would do with the last events, and would have done with those archived."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Final

from meetpoint.client.errors import RefusedError
from meetpoint.client.network import Network
from meetpoint.client.replay import Replayed
from meetpoint.errors import FilterError, LimitError
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.observing.observer import Shown, moment_text
from meetpoint.gateway.observing.shapes import (
    BacktestIs,
    Explained,
    FilterProblem,
    Finding,
    NearMiss,
    RecentCount,
    Slice,
    TryIs,
)
from meetpoint.language.filters.algebra import canonical
from meetpoint.language.filters.explain import explain
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.filters.lint import lint
from meetpoint.language.schema.schema import Schema

__all__ = ["run_backtest", "try_filter"]

EXPLAINED_MAX: Final = 5
"""So many events that are accepted, and as many that are not, are explained."""
READ_MAX: Final = 100_000
"""So many archived events are looked at."""
READ_S: Final = 20.0
"""For about so long."""
CHUNK: Final = 2_000
SAMPLES_MAX: Final = 5
NEAR_MISSES_MAX: Final = 10
SLICES_MAX: Final = 60
_WIDTHS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)
EVERYTHING: Final = "TRUE"


def try_filter(text: str, schema: Schema | None, recent: list[Shown]) -> TryIs:
    """What a text says, or what is wrong with it; and what it would do with the last events."""
    try:
        filter_ = parse_filter(text, schema)
    except FilterError as error:
        problem = FilterProblem(error.problem, error.start, max(0, error.end - error.start), error.hint)
        return TryIs(False, problem, [], None, RecentCount(0, len(recent)), [])
    findings = [Finding(str(each.oddity), each.message) for each in lint([(0, text)], schema).findings]
    accepted = [each for each in recent if filter_.accepts(each.event.attributes)]
    refused = [each for each in recent if not filter_.accepts(each.event.attributes)]
    explained = [_explained(filter_, each) for each in (*accepted[:EXPLAINED_MAX], *refused[:EXPLAINED_MAX])]
    return TryIs(True, None, findings, _in_short(filter_), RecentCount(len(accepted), len(recent)), explained)


def _in_short(filter_: Filter) -> str | None:
    """The canonical text; None where it is longer than a filter may be."""
    try:
        return canonical(filter_).text
    except LimitError:
        return None


def _explained(filter_: Filter, shown: Shown) -> Explained:
    found = explain(filter_, shown.event)
    return Explained(shown.to_shape(), found.accepted, found.text().splitlines())


async def run_backtest(net: Network, text: str, schema: Schema | None, hours: float) -> BacktestIs:
    """A filter over what brokers archived in the last so many hours, or as much of it as can be read in a while."""
    filter_ = parse_filter(text, schema)
    since = datetime.now(UTC) - timedelta(hours=hours)
    replay = net.replay(EVERYTHING, since)
    until = time.monotonic() + READ_S
    counting = _Counting(filter_)
    is_cut = False
    try:
        await replay.extend()
        chunk: list[Replayed] = []
        while not is_cut and (found := await replay.next()) is not None:
            chunk.append(found)
            if len(chunk) >= CHUNK:
                await asyncio.to_thread(counting.add, chunk)
                chunk = []
            is_cut = len(counting.times) + len(chunk) >= READ_MAX or time.monotonic() > until
        await asyncio.to_thread(counting.add, chunk)
    except RefusedError as error:
        if "no archive" in str(error):
            raise ApiError(409, "archive", str(error)) from None
        raise
    finally:
        replay.close()
    note = None
    if is_cut:
        note = f"only the first {len(counting.times):,} events were read; take fewer hours to see the last ones"
    return counting.result(is_cut, note)


class _Counting:
    """What a filter does with events that come in chunks."""

    def __init__(self, filter_: Filter) -> None:
        self._filter = filter_
        self.times: list[int] = []
        self._hits: list[int] = []
        self._near: Counter[str] = Counter()
        self._samples: list[Shown] = []

    def add(self, chunk: list[Replayed]) -> None:
        from meetpoint.matching.jobs import backtest

        if not chunk:
            return
        for each in chunk:
            self.times.append(each.at_us)
            if self._filter.accepts(each.event.attributes):
                self._hits.append(each.at_us)
                self._samples.append(Shown(each.event, each.at_us, 1))
        self._samples = self._samples[-SAMPLES_MAX:]
        self._near += backtest(self._filter, [each.event.attributes for each in chunk]).near_misses

    def result(self, is_cut: bool, note: str | None) -> BacktestIs:
        near = [NearMiss(why, count) for why, count in self._near.most_common(NEAR_MISSES_MAX)]
        samples = [each.to_shape() for each in reversed(self._samples)]
        if not self.times:
            said = "the archive has no events of that time; events get there some seconds after they are published"
            return BacktestIs(0, 0, None, None, [], [], [], False, said)
        first, last = min(self.times), max(self.times)
        return BacktestIs(
            len(self._hits), len(self.times), moment_text(first), moment_text(last), self._timeline(first, last), near,
            samples, is_cut, note,
        )  # fmt: skip

    def _timeline(self, first: int, last: int) -> list[Slice]:
        span_s = (last - first) / 1e6
        width = next((width for width in _WIDTHS_S if span_s / width < SLICES_MAX), _WIDTHS_S[-1]) * 1_000_000
        events = Counter(at_us // width for at_us in self.times)
        hits = Counter(at_us // width for at_us in self._hits)
        slices = range(first // width, last // width + 1)
        return [Slice(moment_text(each * width), hits[each], events[each]) for each in slices][-4 * SLICES_MAX :]
