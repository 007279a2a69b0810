"""Looking at a network: how overlays and schemes are seen, how often subscriptions match, how single events go."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meetpoint.api.client_messages import (
    Follow,
    FollowedReply,
    FollowedRequest,
    RecentReply,
    RecentRequest,
    Response,
    TraceStep,
    ViewReply,
    ViewRequest,
)
from meetpoint.api.codec import MESSAGE_MAX
from meetpoint.api.ids import EventKey, HomeId, Key, NodeId, Peer
from meetpoint.api.outcomes import Published, Refused, Stored
from meetpoint.api.requests import Publish
from meetpoint.broker import Broker
from meetpoint.broker.config import Access
from meetpoint.broker.observe.metrics import SLICE_US, SLICES, MatchRates
from meetpoint.broker.observe.tracing import (
    FOLLOWED_MAX,
    LOOK_US,
    NAMES_MAX,
    RECENT_BYTES,
    SEEN_MAX,
    EventTracer,
    RecentEvents,
)
from meetpoint.catalog import make_codec
from meetpoint.catalog.purposes import ENVELOPES, EVENT_STEPS, PURPOSES, IdMatcher
from meetpoint.client import Network, connect
from meetpoint.gateway.dashboard.event_path import EventPath, path_of
from meetpoint.node.home.subscription_table import event_of
from meetpoint.node.runtime.effects import Answer, Effect, Send, Trace
from meetpoint.node.runtime.inputs import ClientRequest, Persisted, Received
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import DeliverToHome, KeyedReply, KeyedRequest
from meetpoint.schemes.dmm import DmmSettings
from meetpoint.schemes.dmm.entries import StoredRegion
from meetpoint.schemes.dmm.regions import Regions
from meetpoint.schemes.dmm.rules import RegionRecord, RegionState
from meetpoint.schemes.dmm.space import ROOT, Code
from meetpoint.schemes.lists.messages import ListQuery, ListReply
from meetpoint.schemes.rebeca import RebecaSettings
from tests.broker.talking import broker, calling, event, network, run, until
from tests.security.authorities import TestAuthority

SCHEMA = """
attributes:
  price: {type: float, min: 0, max: 100}
"""
QUICK = RebecaSettings(lease_us=1_500_000, period_us=200_000)
ANSWERS = {
    "flooded", "elsewhere", "brought", "spread_done", "visited", "matched", "collected", "accepted", "heard", "carried",
    "watermark", "watermarked", "d.matched", "d.reaching", "r.handled", "f.handed", "f.carried", "f.served",
}  # fmt: skip


def test_every_kind_of_message_about_events_is_a_step_on_or_an_answer() -> None:
    kinds = {tag for tag, purpose in PURPOSES.items() if purpose == "events"} - ENVELOPES
    assert kinds == EVENT_STEPS.keys() | ANSWERS
    assert not EVENT_STEPS.keys() & ANSWERS


# -- views -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlay", "kinds"), [("chord", {"successor", "predecessor"}), ("pastry", {"leaf"}), ("hypercube", {"neighbour"})]
)
def test_a_view_shows_whom_an_overlay_links(overlay: str, kinds: set[str]) -> None:
    async def main() -> None:
        async with network(3, overlay=overlay) as brokers, connect(f"mp://{brokers[0].address}") as net:
            ids = {bytes(each.node.me.id) for each in brokers}

            async def links() -> dict[bytes, dict[bytes, str]]:
                views = await net.views()
                return {bytes(peer.id): dict(view.links) for peer, view in views.items() if view is not None}

            found: dict[bytes, dict[bytes, str]] = {}
            for _ in range(200):
                found = await links()
                if len(found) == 3 and all(each.keys() >= ids - {me} for me, each in found.items()):
                    break
                await asyncio.sleep(0.05)
            assert {me: each.keys() & ids for me, each in found.items()} == {me: ids - {me} for me in ids}
            assert {kind for each in found.values() for node, kind in each.items() if node in ids} == kinds
            views = [view for view in (await net.views()).values() if view is not None]
            assert {view.overlay for view in views} == {overlay}
            assert {view.state for view in views} == {"ready"}
            regions = sorted(region for view in views for region in view.regions)
            assert len(regions) == (3 if overlay == "hypercube" else 0)
            assert sum(2.0 ** -len(region) for region in regions) == (1.0 if regions else 0)
            assert all(view.tree is None for view in views)

    run(main())


def test_the_tree_of_regions_is_seen_in_parts() -> None:
    async def main() -> None:
        settings = DmmSettings(schema=SCHEMA, threshold=4, delegation="always")
        async with network(3, scheme="dmm", dmm=settings) as brokers, connect(f"mp://{brokers[0].address}") as net:
            while await _tree(net) != {"": (0, False)}:  # as soon as somebody holds it
                await asyncio.sleep(0.05)
            for number in range(12):
                await net.subscribe(f"price >= {8 * number} AND price < {8 * number + 4}", durable=f"s{number}")
            for _ in range(400):
                tree = await _tree(net)
                leaves = [code for code, (_, is_split) in tree.items() if not is_split]
                if len(leaves) > 2 and sum(2.0 ** -len(code) for code in leaves) == 1:
                    break
                await asyncio.sleep(0.05)
            assert tree[""][1], "the root is split"
            assert sum(2.0 ** -len(code) for code in leaves) == 1, "leaves part the space"
            assert sum(tree[code][0] for code in leaves) >= 12

    run(main())


def test_of_a_tree_only_what_serves_or_is_split_is_shown_and_only_where_it_is_held() -> None:
    regions = []
    for number, state in enumerate(RegionState):
        region = StoredRegion(Code(f"{number:04b}"))
        region.stored = RegionRecord(state=state)
        regions += [(HomeId(b"here"), region), (HomeId(b"gone"), region)]
    held = SimpleNamespace(
        holder=lambda code: None if code == ROOT else SimpleNamespace(id=b"here"),
        _store=SimpleNamespace(regions=lambda: regions),
    )
    shown = {
        RegionState.LEAF: False,
        RegionState.SPLITTING: False,
        RegionState.INTERIOR: True,
        RegionState.MERGING: True,
    }
    wanted = [(f"{number:04b}", 0, shown[state]) for number, state in enumerate(RegionState) if state in shown]
    assert Regions.held(held) == wanted  # type: ignore[arg-type]


async def _tree(net: Network) -> dict[str, tuple[int, bool]]:
    views = (await net.views()).values()
    return {part.code: (part.entries, part.is_split) for view in views if view for part in view.tree or ()}


# -- following ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "overlay", "kinds"),
    [
        ("meet", "chord", {"bring": 1}),
        ("flood", "pastry", {"flood": 3}),
        ("lists", "chord", {"collect": 4, "walk": 2}),
        ("lists:hybrid", "chord", {"chain": 5, "tell": 2, "walk": 2}),
        ("dmm", "chord", {"match": 3, "bring": 1}),
        ("reach", "hypercube", {"handle": 1, "bring": 1}),
        ("rebeca", "chord", {"hand": 2}),
    ],
)
def test_an_event_is_followed_from_where_it_is_published_to_who_gets_it(
    scheme: str, overlay: str, kinds: dict[str, int]
) -> None:
    async def main() -> None:
        async with (
            named(4, scheme=scheme, overlay=overlay, rebeca=QUICK) as brokers,
            connect(f"mp://{brokers[3].address}") as net,
            connect(f"mp://{brokers[1].address}") as second,
            connect(f"mp://{brokers[2].address}") as third,
        ):
            wanted = await second.subscribe("price > 100", durable="dear")
            await second.subscribe("price > 100", durable="dear too")
            await third.subscribe("price < 3", durable="cheap")
            await _settle(net, wanted)
            assert set((await net.follow("one")).values()) == {Stored()}
            await asyncio.gather(
                *(net.publish({"price": 150.0}, id="on"), net.publish({"price": 150.0}, id="one")),
                *(net.publish({"price": 150.0}, id=f"one{number}") for number in range(20)),
            )
            await _got(wanted, 22)
            path = await _path(net, "one")
            addresses = {each.node.me.id.hex(): each.address for each in brokers}
            assert [(addresses[met.broker], set(met.matched), met.looked_at) for met in path.met] == [
                (brokers[1].address, {"dear", "dear too"}, 2)
            ]
            assert sorted(each.name for each in path.delivered) == ["dear", "dear too"]
            assert {addresses[each.broker] for each in path.delivered} == {brokers[1].address}
            reached = {brokers[3].node.me.id.hex()}
            for hop in path.hops:  # each goes on from where it had come to
                assert hop.source in reached
                reached.add(hop.to)
                assert hop.parent is None or path.hops[hop.parent - 1].to == hop.source
                assert hop.parent is not None or hop.source == brokers[3].node.me.id.hex()
            assert path.met[0].broker in reached
            found = Counter(hop.kind for hop in path.hops)
            assert found == kinds, "only what is about this event, and not about those beside it"
            assert not path.is_cut
            assert path.silent == []

    run(main())


@contextlib.asynccontextmanager
async def named(count: int, **said: Any) -> AsyncIterator[list[Broker]]:
    """Brokers whose places on the circle are always the same, and who all know each other."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[Broker] = []
        for number in range(count):
            join = (found[0].address,) if found else ()
            found.append(await stack.enter_async_context(broker(name=f"n{number}", join=join, **said)))
        await until(lambda: all(len(each.node.directory.others()) == count - 1 for each in found), "all are known")
        yield found


async def _settle(net: Network, wanted: object) -> None:
    """Wait until every event takes the same route.

    Before the overlay has stabilised there are detours; without the summaries that an event before it has brought, an
    event of `meet` also visits brokers that have nothing for it.
    """
    await asyncio.sleep(60)
    await net.follow("early")
    await net.publish({"price": 150.0}, id="early")
    await _got(wanted, 1)
    await _path(net, "early")


async def _got(subscription: object, count: int) -> None:
    found = 0
    async for _ in subscription:  # type: ignore[attr-defined]
        found += 1
        if found == count:
            return


async def _path(net: Network, id_: str) -> EventPath:
    for _ in range(200):
        path = path_of(id_, b"{}", await net.followed(id_), time.time_ns() // 1000)
        if path.done and path.delivered:
            return path
        await asyncio.sleep(0.05)
    raise TimeoutError(f"{id_} has not arrived: {path}")


def is_watched(one: Broker) -> bool:
    return one._driver._hook is not None


def test_nothing_is_remembered_of_what_nobody_follows() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            await client.publish(event(1, price=1))
            assert not is_watched(one)
            refused = await client.get(FollowedRequest("e1"))
            assert isinstance(refused, Refused)
            assert "not followed here" in refused.reason
            assert await client.get(Follow("e2", 0.3)) == Stored()
            assert is_watched(one)
            await client.publish(event(1, price=1), event(2, price=1))
            told = await client.get(FollowedRequest("e2"))
            assert isinstance(told, FollowedReply)
            assert told.event is not None
            assert [each.step for each in told.seen][:1] == ["published"]
            await asyncio.sleep(0.35)
            await client.publish(event(3, price=1))
            assert not is_watched(one), "it ends by itself"
            assert isinstance(await client.get(FollowedRequest("e2")), Refused)

    run(main())


def test_following_is_bounded() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            for number in range(FOLLOWED_MAX):
                assert await client.get(Follow(f"f{number}", 1e9)) == Stored()
            assert await client.get(Follow("f0", 5)) == Stored(), "again is no other"
            refused = await client.get(Follow("one more", 5))
            assert isinstance(refused, Refused)
            assert refused.retry
            for bad in (Follow("", 5), Follow("x" * 1001, 5), Follow("x", 0), Follow("x", float("nan"))):
                refused = await client.get(bad)
                assert isinstance(refused, Refused), bad
                assert not refused.retry

    run(main())


def test_an_event_is_followed_where_no_journal_is_kept() -> None:
    async def main() -> None:
        async with broker(journal_lines=0) as one, calling(one.address) as client:
            await client.subscribe("all", "TRUE")
            assert not one.node.is_traced
            assert await client.get(Follow("e1", 0.4)) == Stored()
            await client.publish(event(1, price=1))
            await client.notified(1)
            told = await client.get(FollowedRequest("e1"))
            assert isinstance(told, FollowedReply)
            assert {"published", "taken", "notified"} <= {each.step for each in told.seen}
            await asyncio.sleep(0.45)
            await client.publish(event(2, price=1))
            assert not one.node.is_traced, "it is as it was before"

    run(main())


def test_what_is_told_of_a_followed_event_fits_an_answer() -> None:
    tracer = EventTracer(Standing(), make_codec())  # type: ignore[arg-type]
    tracer.follow("e1", 10, 0)
    names = tuple(f"{number:0200d}" for number in range(NAMES_MAX + 50))
    tracer.on_step(ClientRequest(1, Publish(event(1))), [Trace(KEY, "published", content=event(1))], 1)
    tracer.on_step(Persisted(1), [Trace(KEY, "notified", names=names)] * (SEEN_MAX + 10), 2)
    told = tracer.followed("e1", (), 3)
    assert told is not None
    assert told.is_cut
    assert len(told.seen[1].names) == NAMES_MAX
    assert 100_000 < len(make_codec().encode(Response(1, told))) < MESSAGE_MAX


class Standing:
    """As much of a node as a follower looks at."""

    me = Peer(NodeId(Key(b"m" * 20)), "m:1")


def test_questions_that_name_no_event_are_known_by_their_step_and_by_their_answers() -> None:
    codec = make_codec()
    tracer = EventTracer(Standing(), codec)  # type: ignore[arg-type]
    tracer.follow("e1", 10, 0)
    asked = codec.encode(ListQuery("price", (), b"1", ()))
    answered = codec.encode(ListReply(()))
    arc = KeyRange(b"k" * 20, b"k" * 20)

    def keyed(number: int) -> Send:
        return Send(A, KeyedRequest(b"k" * 20, b"k" * 20, Standing.me, number, 0, asked))

    def done(number: int) -> Received:
        return Received(A, KeyedReply(number, b"k" * 20, b"k" * 20, 1, HomeId(b"h" * 20), arc, answered))

    other = EventKey(KEY.home, 1, 8)
    published = [Trace(KEY, "published", content=event(1)), Trace(other, "published", content=event(2))]
    tracer.on_step(ClientRequest(1, Publish(event(1))), published, 1)
    beside = Send(A, DeliverToHome(9, HomeId(b"h" * 20), other, 0, (), event(2)))
    both: list[Effect] = [Answer(1, Published(KEY)), keyed(1), beside, Answer(2, Published(other)), keyed(2)]
    tracer.on_step(Persisted(1), both, 2)
    tracer.on_step(done(2), [keyed(3)], 3)
    tracer.on_step(done(1), [keyed(4)], 4)
    told = tracer.followed("e1", (), 5)
    assert told is not None
    assert told.event == KEY
    sent = [each.thread.rpartition(b"/")[2] for each in told.seen if each.step == "sent"]
    assert sent == [b"1", b"4"], "of two events in one step, and of two answers, its own"
    more = tracer.followed("e1", (b"e" + Standing.me.id + b"/3",), 5)
    assert more is not None
    assert len(more.seen) == len(told.seen) + 1, "what others know to be about it was seen too"


def test_only_who_observes_may_look(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)

    async def main() -> None:
        async with (
            broker(access=Access(**authority.access)) as one,
            calling(one.address, token=authority.token("ann", tenant="acme")) as ann,
            calling(one.address, token=authority.token("eve", roles=("observe",))) as eve,
        ):
            for what in (ViewRequest(), RecentRequest(), Follow("e1"), FollowedRequest("e1")):
                refused = await ann.get(what)
                assert isinstance(refused, Refused), what
                assert "observe or operate" in refused.reason
            assert isinstance(await eve.get(ViewRequest()), ViewReply)
            assert isinstance(await eve.get(RecentRequest()), RecentReply)
            await ann.publish(event(1, price=1))
            assert await eve.get(Follow("@acme/ann/e2")) == Stored()
            await ann.publish(event(2, price=1))
            told = await eve.get(FollowedRequest("@acme/ann/e2"))
            assert isinstance(told, FollowedReply)
            assert told.event is not None, "others' events by their full ids"
            recent = await eve.get(RecentRequest())
            assert isinstance(recent, RecentReply)
            assert [event_of(each.content).id for each in recent.events] == ["@acme/ann/e1", "@acme/ann/e2"]

    run(main())


def test_the_last_events_are_remembered_while_somebody_asks() -> None:
    recent_events = RecentEvents()
    watched: list[bool] = []
    recent_events.on_change = watched.append
    asked = ClientRequest(1, Publish(b""))
    assert recent_events.since(0, 0) == RecentReply(0, (), ())
    steps = [Trace(KEY, "published", content=event(1)), Trace(KEY, "taken", names=("a", "b")), Trace(KEY, "taken")]
    recent_events.on_step(asked, steps, 1)
    recent_events.on_step(
        asked, [Trace(KEY, "notified", names=("a",)), Trace(KEY, "notified", names=("a",), detail="again")], 2
    )
    found = recent_events.since(0, 3)
    assert [(each.number, each.event) for each in found.events] == [(1, KEY)]
    assert [(each.names, each.is_told) for each in found.matches] == [(2, False), (1, True), (1, False)]
    assert recent_events.since(found.last, 4) == RecentReply(found.last, (), ())
    recent_events.on_step(asked, steps, LOOK_US + 5)
    assert watched == [True, False], "nobody has asked for long"
    assert recent_events.since(0, LOOK_US + 6).events == ()


def test_under_load_the_newest_events_are_told() -> None:
    recent_events = RecentEvents()
    recent_events.since(0, 0)
    large = event(1, text="x" * (RECENT_BYTES // 3))
    recent_events.on_step(ClientRequest(1, Publish(b"")), [Trace(KEY, "published", content=large) for _ in range(5)], 1)
    found = recent_events.since(0, 2)
    assert [each.number for each in found.events] == [4, 5]
    assert found.last == 5


# -- putting a path together -------------------------------------------------------------------------------------------

A, B, C = (Peer(bytes([n]) * 20, f"b{n}:1") for n in (1, 2, 3))  # type: ignore[arg-type]
KEY = EventKey(HomeId(b"h" * 20), 1, 7)


def told(**seen: list[TraceStep] | None) -> Mapping[Peer, FollowedReply | None]:
    peers = {"a": A, "b": B, "c": C}
    return {
        peers[name]: None if found is None else FollowedReply(KEY, tuple(found), False) for name, found in seen.items()
    }


def test_hops_are_numbered_as_they_were_sent_and_know_what_led_to_them() -> None:
    path = path_of(
        "e",
        b"{}",
        told(
            a=[
                TraceStep(1, 1000, "published"),
                TraceStep(2, 2000, "sent", B.id, "visit", b"q1"),
                TraceStep(5, 9000, "settled"),
            ],
            b=[
                TraceStep(1, 3000, "received", A.id, "visit", b"q1"),
                TraceStep(2, 3100, "sent", C.id, "bring", b"q2"),
                TraceStep(3, 3200, "sent", A.id, "visited", b"q1"),
                TraceStep(4, 9000, "received", A.id, "visit", b"q9"),
            ],
            c=[
                TraceStep(9, 4500, "received", B.id, "bring", b"q2"),
                TraceStep(10, 4600, "taken", names=("x",), looked_at=3),
            ],
        ),
        20_000,
    )
    assert [(hop.number, hop.source, hop.to, hop.kind, hop.ms, hop.parent) for hop in path.hops] == [
        (1, A.id.hex(), B.id.hex(), "visit", 2.0, None),
        (2, B.id.hex(), C.id.hex(), "bring", 3.5, 1),
        (3, A.id.hex(), B.id.hex(), "visit", 8.0, None),
    ], "what came to a sender later did not lead to it"
    assert path.done
    assert path.at == A.id.hex()
    assert [(met.broker, met.matched, met.looked_at, met.ms) for met in path.met] == [(C.id.hex(), ("x",), 3, 3.6)]
    assert path.dropped == []


def test_a_message_that_did_not_come_is_a_drop_once_it_must_have() -> None:
    sent = [
        TraceStep(1, 1000, "published"),
        TraceStep(2, 2000, "sent", B.id, "visit"),
        TraceStep(3, 2000, "sent", C.id, "bring"),
    ]
    early = path_of("e", b"{}", told(a=sent, b=[], c=None), 2500)
    assert (early.dropped, early.hops, early.done) == ([], [], False)
    late = path_of("e", b"{}", told(a=sent, b=[], c=None), 2_000_000)
    assert [(drop.broker, drop.why) for drop in late.dropped] == [
        (B.id.hex(), "a message to it (visit) did not arrive"),
        (C.id.hex(), "it does not answer: whether a message (bring) came there is not known"),
    ]
    assert late.silent == [C.address]


def test_who_matched_nothing_or_refused_is_where_the_event_was_dropped() -> None:
    visited = TraceStep(2, 1000, "visited", detail="its keys here have matches of 0 homes")
    path = path_of(
        "e",
        b"{}",
        told(
            a=[TraceStep(1, 900, "published"), visited],
            b=[
                TraceStep(1, 1000, "taken", looked_at=4),
                visited,
                TraceStep(3, 2000, "rejected", names=("x",), detail="no room"),
            ],
        ),
        5000,
    )
    assert {drop.broker for drop in path.dropped} == {B.id.hex()}, "from where it was published it went on"
    assert [drop.why for drop in path.dropped] == [
        "it came here, and none of 4 subscriptions matched",
        "nothing that is kept here for others matched",
        "x did not take it: no room",
    ]


def test_signs_of_an_event_are_its_id_and_its_key() -> None:
    signs = IdMatcher(b"\xa2e1")
    assert signs.is_in(b"..\xa2e1..")
    assert not signs.is_in(b"..\xa3e12..")
    signs.add_key(KEY)
    assert signs.is_in(b"x" + b"\x93\xc4\x14" + b"h" * 20 + b"\x01\x07" + b"y")
    signs.add_key(EventKey(KEY.home, 1, 8))
    assert signs.event == KEY, "the first counts"


# -- paces -------------------------------------------------------------------------------------------------------------


def test_matches_are_counted_by_subscription_and_those_of_a_minute_pass() -> None:
    rates = MatchRates(7)
    rates.matched(("a", "b"), 7)
    rates.matched(("a",), 8)
    found = {name: rates.of(name, 9) for name in ("a", "b", "c")}
    assert {name: (each.total, each.lately, each.last_us) for name, each in found.items()} == {
        "a": (2, 2, 7),
        "b": (1, 1, 7),
        "c": (0, 0, 0),
    }
    rates.matched(("a",), 7 + SLICE_US)
    assert (rates.of("a", 7 + SLICE_US).total, rates.of("a", 7 + SLICE_US).last_us) == (3, 7 + SLICE_US)
    within, beyond = 6 + (SLICES + 1) * SLICE_US, 7 + (SLICES + 1) * SLICE_US
    assert rates.of("b", within).lately == 1
    assert (rates.of("b", beyond).lately, rates.of("b", beyond).total, rates.of("b", beyond).last_us) == (0, 1, 7)
    assert rates.of("a", beyond).lately == 1
    assert rates.of("a", 1000 * SLICE_US).lately == 0
    rates.keep(["a"])
    assert (rates.of("a", 1000 * SLICE_US).total, rates.of("b", 1000 * SLICE_US).total) == (3, 0)


def test_a_listing_says_how_often_each_subscription_matched() -> None:
    async def main() -> None:
        async with broker() as one, connect(f"mp://{one.address}") as net:
            await net.subscribe("price > 1", durable="some")
            await net.subscribe("price > 100", durable="none")
            await asyncio.gather(*(net.publish({"price": number}) for number in range(5)))
            await until(lambda: one.counts.totals["events_matched"] == 3, "three matched")
            held = {each.name: each for each in await net.subscriptions()}
            assert (held["some"].matched, held["some"].matched_lately) == (3, 3)
            assert (held["none"].matched, held["none"].matched_us) == (0, 0)
            assert held["some"].matched_us > 0 < held["some"].counted_us

    run(main())
