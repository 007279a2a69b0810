"""Views for the dashboard: the network, its subscriptions, and a filter on recent and archived events.

These are /api/network, /api/subscriptions, /api/try and /api/backtest.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from meetpoint.api.client_messages import BrokerStatus, HostedSubscription, StatusRequest, ViewReply, ViewRequest
from meetpoint.api.ids import Peer
from meetpoint.client.errors import RefusedError
from meetpoint.client.network import Network
from meetpoint.client.replay import Replayed
from meetpoint.errors import FilterError, LimitError
from meetpoint.gateway.dashboard.bodies import (
    BacktestResult,
    BrokerView,
    ExplainedEvent,
    FilterFinding,
    FilterProblem,
    MatchCount,
    NearMiss,
    NetworkView,
    OverlayLink,
    SubscriptionPage,
    SubscriptionSummary,
    TimeSlice,
    TreeRegion,
    TryResult,
)
from meetpoint.gateway.dashboard.observer import ObservedEvent, show_moment
from meetpoint.gateway.http.errors import ApiError
from meetpoint.language.filters.algebra import canonical
from meetpoint.language.filters.explain import explain
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.filters.lint import lint
from meetpoint.language.schema.schema import Schema

__all__ = ["Hosted", "Order", "list_subscriptions", "network_view", "run_backtest", "try_filter"]


# -- the network -------------------------------------------------------------------------------------------------------


BROKER_TIMEOUT_S: Final = 1.5
NETWORK_TIMEOUT_S: Final = 5.0
SILENT: Final = "silent"
_NUMBERS: Final[tuple[str, ...]] = (
    "subscriptions", "homes", "queued_events", "unsettled_events", "clients", "peers_in", "peers_out", "copies",
    "events_published", "events_taken", "events_matched", "deliveries", "dead_letters", "messages_in", "messages_out",
    "refusals", "store_bytes",
)  # fmt: skip


async def network_view(net: Network, rates: Mapping[bytes, float]) -> NetworkView:
    """Return all brokers with their links, regions and load; `rates` are messages per second."""
    no_answer = ApiError(503, "network", "no broker answers; see: meetpoint top", headers={"Retry-After": "1"})
    try:
        async with asyncio.timeout(NETWORK_TIMEOUT_S):
            views, status = await asyncio.gather(
                net.ask_all(lambda peer: ViewRequest(), ViewReply, BROKER_TIMEOUT_S),
                net.ask_all(lambda peer: StatusRequest(), BrokerStatus, BROKER_TIMEOUT_S),
            )
    except TimeoutError:
        raise no_answer from None
    first = next((view for view in views.values() if view is not None), None)
    if first is None:
        raise no_answer
    known = {bytes(peer.id) for peer in views}
    load = _loads(rates, status)
    brokers = [
        _broker(peer, view, status.get(peer), known, load.get(peer.id, 0.0))
        for peer, view in sorted(views.items(), key=lambda each: each[0].id)
    ]
    tree = [
        TreeRegion(region.code, peer.id.hex(), region.entries, region.is_split)
        for peer, view in views.items()
        if view is not None
        for region in view.tree or ()
    ]
    has_tree = any(view is not None and view.tree is not None for view in views.values())
    tree.sort(key=lambda region: (len(region.code), region.code))
    return NetworkView(first.network, first.scheme, first.overlay, brokers, False, tree if has_tree else None)


def _broker(
    peer: Peer, view: ViewReply | None, status: BrokerStatus | None, known: set[bytes], load: float
) -> BrokerView:
    place = int.from_bytes(peer.id, "big") / 256 ** len(peer.id)
    numbers = {} if status is None else {name: status.numbers[name] for name in _NUMBERS if name in status.numbers}
    if view is None:
        return BrokerView(peer.id.hex(), peer.address, SILENT, place, 0.0, numbers, [], [], "it does not answer")
    links = [OverlayLink(node.hex(), kind) for node, kind in view.links if node in known]
    return BrokerView(peer.id.hex(), peer.address, view.state, place, load, numbers, links, list(view.regions))


def _loads(rates: Mapping[bytes, float], status: Mapping[Peer, BrokerStatus | None]) -> dict[bytes, float]:
    """Return the load of each broker as a share of the busiest one's."""
    weights = {bytes(peer.id): rates.get(peer.id, 0.0) for peer in status}
    if not any(weights.values()):
        weights = {
            bytes(peer.id): 0.0 if status is None else status.numbers.get("subscriptions", 0.0)
            for peer, status in status.items()
        }
    most = max(weights.values(), default=0.0)
    return {node: round(weight / most, 4) if most else 0.0 for node, weight in weights.items()}


# -- subscriptions -----------------------------------------------------------------------------------------------------


PAGE: Final = 100

Hosted: TypeAlias = Mapping[Peer, list[HostedSubscription] | None]
"""The subscriptions that each broker hosts; None where it does not answer."""
Order: TypeAlias = Literal["hot", "silent", "name"]


def list_subscriptions(hosted: Hosted, search: str, order: Order, after: str) -> SubscriptionPage:
    """Return a page, after a name, of the subscriptions with all words of a search.

    The words are looked for in the name, filter, owner and labels.
    """
    words = search.casefold().split()
    now_us = time.time_ns() // 1000
    found = [
        _shown(peer, subscription, now_us)
        for peer, here in hosted.items()
        for subscription in here or ()
        if all(word in _text(subscription) for word in words)
    ]
    found.sort(key=lambda each: each.name)
    if order == "hot":
        found.sort(key=lambda each: (-(each.per_minute or 0), -(each.delivered or 0)))
    elif order == "silent":
        found.sort(key=lambda each: -(float("inf") if each.silent_s is None else each.silent_s))
    first = next((place + 1 for place, each in enumerate(found) if each.name == after), 0) if after else 0
    page = found[first : first + PAGE]
    more = first + PAGE < len(found)
    return SubscriptionPage(page, more, len(found), page[-1].name if more else None)


def _text(subscription: HostedSubscription) -> str:
    labels = " ".join(f"{key}={value}" for key, value in subscription.terms.labels)
    return f"{subscription.name}\n{subscription.filter}\n{subscription.terms.owner}\n{labels}".casefold()


def _shown(peer: Peer, subscription: HostedSubscription, now_us: int) -> SubscriptionSummary:
    is_counted = subscription.counted_us > 0
    return SubscriptionSummary(
        subscription.name,
        subscription.filter,
        subscription.terms.owner,
        dict(subscription.terms.labels),
        subscription.terms.durable,
        peer.id.hex(),
        subscription.queued,
        subscription.is_present,
        subscription.matched if is_counted else None,
        subscription.matched_lately if is_counted else None,
        round(max(0, now_us - subscription.matched_us) / 1e6, 1) if subscription.matched_us else None,
        show_moment(subscription.subscribed_us),
    )


# -- filters -----------------------------------------------------------------------------------------------------------


EXPLAINED_MAX: Final = 5
"""The most accepted events that are explained, and the most refused ones."""
READ_MAX: Final = 100_000
"""The most archived events that are read."""
READ_S: Final = 20.0
"""The approximate time for reading them."""
CHUNK: Final = 2_000
SAMPLES_MAX: Final = 5
NEAR_MISSES_MAX: Final = 10
SLICES_MAX: Final = 60
_WIDTHS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)
EVERYTHING: Final = "TRUE"


def try_filter(text: str, schema: Schema | None, recent: list[ObservedEvent]) -> TryResult:
    """Return the error in a filter's text, or its findings and its outcome on recent events."""
    try:
        filter_ = parse_filter(text, schema)
    except FilterError as error:
        problem = FilterProblem(error.problem, error.start, max(0, error.end - error.start), error.hint)
        return TryResult(False, problem, [], None, MatchCount(0, len(recent)), [])
    findings = [FilterFinding(str(each.oddity), each.message) for each in lint([(0, text)], schema).findings]
    accepted = [each for each in recent if filter_.accepts(each.event.attributes)]
    refused = [each for each in recent if not filter_.accepts(each.event.attributes)]
    explained = [_explain_event(filter_, each) for each in (*accepted[:EXPLAINED_MAX], *refused[:EXPLAINED_MAX])]
    return TryResult(True, None, findings, _canonical_text(filter_), MatchCount(len(accepted), len(recent)), explained)


def _canonical_text(filter_: Filter) -> str | None:
    """Return the canonical text; None where it is longer than a filter may be."""
    try:
        return canonical(filter_).text
    except LimitError:
        return None


def _explain_event(filter_: Filter, shown: ObservedEvent) -> ExplainedEvent:
    found = explain(filter_, shown.event)
    return ExplainedEvent(shown.to_body(), found.accepted, found.text().splitlines())


async def run_backtest(net: Network, text: str, schema: Schema | None, hours: float) -> BacktestResult:
    """Return the outcome of a filter on the archive of the last hours, or on as much as `READ_S` allows."""
    filter_ = parse_filter(text, schema)
    since = datetime.now(UTC) - timedelta(hours=hours)
    replay = net.replay(EVERYTHING, since)
    until = time.monotonic() + READ_S
    counter = _BacktestCounter(filter_)
    is_cut = False
    try:
        await replay.extend()
        chunk: list[Replayed] = []
        while not is_cut and (found := await replay.next()) is not None:
            chunk.append(found)
            if len(chunk) >= CHUNK:
                await asyncio.to_thread(counter.add, chunk)
                chunk = []
            is_cut = len(counter.times) + len(chunk) >= READ_MAX or time.monotonic() > until
        await asyncio.to_thread(counter.add, chunk)
    except RefusedError as error:
        if "no archive" in str(error):
            raise ApiError(409, "archive", str(error)) from None
        raise
    finally:
        replay.close()
    note = None
    if is_cut:
        note = f"only the first {len(counter.times):,} events were read; take fewer hours to see the last ones"
    return counter.result(is_cut, note)


class _BacktestCounter:
    """Counts the outcome of a filter on events that come in chunks."""

    def __init__(self, filter_: Filter) -> None:
        self._filter = filter_
        self.times: list[int] = []
        self._hits: list[int] = []
        self._near: Counter[str] = Counter()
        self._samples: list[ObservedEvent] = []

    def add(self, chunk: list[Replayed]) -> None:
        from meetpoint.matching.jobs import backtest

        if not chunk:
            return
        for each in chunk:
            self.times.append(each.at_us)
            if self._filter.accepts(each.event.attributes):
                self._hits.append(each.at_us)
                self._samples.append(ObservedEvent(each.event, each.at_us, 1))
        self._samples = self._samples[-SAMPLES_MAX:]
        self._near += backtest(self._filter, [each.event.attributes for each in chunk]).near_misses

    def result(self, is_cut: bool, note: str | None) -> BacktestResult:
        near = [NearMiss(why, count) for why, count in self._near.most_common(NEAR_MISSES_MAX)]
        samples = [each.to_body() for each in reversed(self._samples)]
        if not self.times:
            note_ = "the archive has no events of that time; events get there some seconds after they are published"
            return BacktestResult(0, 0, None, None, [], [], [], False, note_)
        first, last = min(self.times), max(self.times)
        return BacktestResult(
            len(self._hits), len(self.times), show_moment(first), show_moment(last), self._timeline(first, last), near,
            samples, is_cut, note,
        )  # fmt: skip

    def _timeline(self, first: int, last: int) -> list[TimeSlice]:
        span_s = (last - first) / 1e6
        width = next((width for width in _WIDTHS_S if span_s / width < SLICES_MAX), _WIDTHS_S[-1]) * 1_000_000
        events = Counter(at_us // width for at_us in self.times)
        hits = Counter(at_us // width for at_us in self._hits)
        slices = range(first // width, last // width + 1)
        return [TimeSlice(show_moment(each * width), hits[each], events[each]) for each in slices][-4 * SLICES_MAX :]
