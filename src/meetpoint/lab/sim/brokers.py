"""The simulator's scripts on real brokers: the interface of `sim.Network`, with sockets and clients instead of a heap.

    net = Network(scheme="meet", nodes=4, seed=7)
    sub = net.subscribe("price > 120")
    event = net.publish({"price": 121})
    net.run()
    assert net.notifications[sub] == [event]

Actions happen phase by phase, one after the other, each when the network has come to rest after the one before, as the
simulator's clients act at long distances in virtual time. The broker of a client is drawn from the seed. There are no
faults here: faults of real brokers are another harness's part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, TypeAlias

from meetpoint.api.outcomes import Found
from meetpoint.api.requests import Lookup
from meetpoint.client.network import Network as Client
from meetpoint.client.network import connect
from meetpoint.client.subscription import Subscription as Subscribed
from meetpoint.client.sync import Background
from meetpoint.errors import MeetpointError
from meetpoint.lab.sim.families import family_of, simulated
from meetpoint.lab.sim.judge import (
    PROBLEMS_SHOWN,
    Change,
    DeliveryRecord,
    History,
    JudgingTimes,
    LookupRecord,
    MembershipHistory,
    PublicationRecord,
    RunReport,
    SubscriptionRecord,
    Verdict,
    check_lookups,
    check_notifications,
)
from meetpoint.lab.sim.scenario import Phase
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.values import Value, clean_attributes
from meetpoint.local_network import LocalNetwork

QUIET_S_MAX = 30.0
"""The longest time for the network to come to rest after one action."""
LOOK_S = 0.005

_Action: TypeAlias = Callable[[], Awaitable[None]]


class Network:
    """A network of real brokers on loopback, from its beginning to its judgement."""

    def __init__(
        self,
        overlay: str = "chord",
        scheme: str = "meet",
        nodes: int = 5,
        seed: int = 7,
        faults: str = "none",
        **settings: Any,
    ) -> None:
        if faults != "none":
            raise MeetpointError(
                f"local: faults {faults!r} are the simulator's; say none, or use meetpoint.lab.sim.Network"
            )
        self._told = {"overlay": overlay, "scheme": scheme, "nodes": nodes, "seed": seed, "detector": "imperfect"}
        small = simulated(overlay, scheme)
        self._local = LocalNetwork(
            nodes, scheme, None, {"overlay": overlay, "dmm": small.dmm, "reach": small.reach, **settings}
        )  # fmt: skip
        self.family = family_of(self._local.network)
        self._random = Random(f"network/{seed}")
        self._scripts: dict[Phase, list[_Action]] = {"load": [], "faults": [], "recovery": [], "after": []}
        self._names = self._events = 0
        self._ran = False
        self.history = History()
        self._clients: list[Client] = []
        self._subscribed: dict[str, Subscribed] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._truth = MembershipHistory()
        self._problems: list[str] = []
        self._verdict = Verdict()
        self._wrong_lookups: list[str] = []
        self._wall_s = 0.0

    # -- what clients will do ------------------------------------------------------------------------------------------

    def subscribe(self, filter_: str, *, phase: Phase = "load") -> str:
        """Schedule a subscription at some broker; return its name."""
        parse_filter(filter_)
        self._names += 1
        name = f"s{self._names}"
        self._say(phase, partial(self._subscribe, name, filter_))
        return name

    def update(self, name: str, filter_: str, *, phase: Phase = "faults") -> None:
        """Schedule another filter for a subscription."""
        parse_filter(filter_)
        self._change(name, phase, filter_)

    def unsubscribe(self, name: str, *, phase: Phase = "faults") -> None:
        """Schedule the end of a subscription."""
        self._change(name, phase, None)

    def publish(self, attributes: Mapping[str, object], *, phase: Phase = "faults") -> str:
        """Schedule an event at some broker; return its id."""
        clean = clean_attributes(attributes)
        self._events += 1
        id_ = f"e{self._events}"
        self._say(phase, partial(self._publish, id_, clean))
        return id_

    def lookup(self, key: bytes | None = None, *, phase: Phase = "after") -> None:
        """Schedule a lookup of a key, or of a random one, at some broker."""
        ring = self.family.ring
        wanted = bytes(ring.key(self._random.getrandbits(ring.bits))) if key is None else key
        self._say(phase, partial(self._look_up, wanted))

    def _say(self, phase: Phase, action: _Action) -> None:
        if self._ran:
            raise MeetpointError("local: this network has run; make another one, or say everything before it runs")
        self._scripts[phase].append(action)

    def _change(self, name: str, phase: Phase, filter_: str | None) -> None:
        if not name.startswith("s") or not name[1:].isdigit() or not 1 <= int(name[1:]) <= self._names:
            raise MeetpointError(f"local: there is no subscription {name!r}; use a name that subscribe() returned")
        self._say(phase, partial(self._alter, name, filter_))

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all phases, and judge."""
        background = Background("meetpoint script")
        try:
            background.run(self.perform())
        finally:
            background.stop()

    async def perform(self) -> None:
        """Run in the event loop of the caller."""
        if self._ran:
            raise MeetpointError("local: this network has run; make another one")
        self._ran = True
        began = time.perf_counter()
        await self._local.start()
        try:
            await self._run()
        finally:
            await self._local.stop()
        self._wall_s = time.perf_counter() - began
        self._judge()

    def _judge(self) -> None:
        self._verdict = check_notifications(self.history, JudgingTimes(0, 0))
        self._wrong_lookups = check_lookups(self.history.lookups, self._truth, 0, self.family.responsible)

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            for number in range(len(self._local.addresses)):
                self._clients.append(await stack.enter_async_context(connect(self._local.url_of(number))))
            for actions in self._scripts.values():
                for action in actions:
                    self._look_who_is_where()
                    await action()
                    await self._rest()
        if self._readers:
            await asyncio.gather(*self._readers)

    def _look_who_is_where(self) -> None:
        now = _now() if self._truth.changes else 0
        for number in range(len(self._local.addresses)):
            node = self._local.broker(number).node
            self._truth.change(now, bytes(node.me.id), member=True, place=self.family.place(node.overlay.view()))

    async def _rest(self) -> None:
        """Wait until nothing is on its way: all brokers are looked at in one moment."""
        loop = asyncio.get_running_loop()
        until = loop.time() + QUIET_S_MAX
        while not self._local.is_quiet:
            if loop.time() > until:
                self._problems.append(f"the network does not come to rest within {QUIET_S_MAX:g} s")
                return
            await asyncio.sleep(LOOK_S)

    def _some(self) -> Client:
        return self._random.choice(self._clients)

    async def _subscribe(self, name: str, filter_: str) -> None:
        client = self._some()
        subscription = self.history.subscriptions[name] = SubscriptionRecord(name, _address(client))
        change = Change(parse_filter(filter_), filter_, _now())
        subscription.changes.append(change)
        self._subscribed[name] = subscribed = await client.subscribe(filter_, durable=name)
        change.acknowledged = _now()
        reader = asyncio.get_running_loop().create_task(self._read(subscription, subscribed))
        self._readers.add(reader)

    async def _read(self, subscription: SubscriptionRecord, subscribed: Subscribed) -> None:
        async for event in subscribed:
            assert event.connection is not None, "no history is asked for"
            delivery = DeliveryRecord(_now(), event.id, event.connection.broker.address, event.redelivered)
            subscription.deliveries.append(delivery)

    async def _alter(self, name: str, filter_: str | None) -> None:
        subscription = self.history.subscriptions.get(name)
        if subscription is None or subscription.changes[-1].filter is None:
            return
        change = Change(None if filter_ is None else parse_filter(filter_), filter_, _now())
        subscription.changes.append(change)
        subscribed = self._subscribed[name]
        await (subscribed.unsubscribe() if filter_ is None else subscribed.update(filter_))
        change.acknowledged = _now()

    async def _publish(self, id_: str, attributes: dict[str, Value]) -> None:
        event = Event(id_, "scripted", len(self.history.publications), datetime.now(UTC), attributes)
        publication = PublicationRecord(event, to_msgpack(event), _now())
        self.history.publications[id_] = publication
        await self._some().publish(event)
        publication.acknowledged = _now()

    async def _look_up(self, key: bytes) -> None:
        client = self._some()
        link = await client.connections.main()
        asked = LookupRecord(key, _now(), link.broker.address)
        self.history.lookups.append(asked)
        word = await link.request(Lookup(key))
        if isinstance(word, Found):
            asked.answered, asked.found, asked.hops = _now(), bytes(word.peer.id), word.hops

    # -- what came of it -----------------------------------------------------------------------------------------------

    @property
    def notifications(self) -> dict[str, list[str]]:
        """By subscription, the ids of the events that came, in order; of repeats the first."""
        return {
            name: list(dict.fromkeys(subscription.notifications))
            for name, subscription in self.history.subscriptions.items()
        }

    def report(self) -> RunReport:
        """Return the counts of the run, and such figures as clients can know."""
        if not self._ran:
            raise MeetpointError("local: this network has not run; call run() first")
        history, verdict = self.history, self._verdict
        found = {kind: getattr(verdict, kind) for kind in verdict.__struct_fields__ if kind != "expected"}
        wrong = [sentence for sentences in found.values() for sentence in sentences]
        deliveries = [each for s in history.subscriptions.values() for each in s.deliveries]
        return RunReport(
            **self._told,  # type: ignore[arg-type]
            **{kind: len(sentences) for kind, sentences in found.items()},  # type: ignore[arg-type]
            faults="none",
            invariants_broken=len(self._problems),
            lookups_wrong=len(self._wrong_lookups),
            problems=[*wrong, *self._problems, *self._wrong_lookups][:PROBLEMS_SHOWN],
            subscriptions=len(history.subscriptions),
            changes=sum(len(each.changes) - 1 for each in history.subscriptions.values()),
            events=len(history.publications),
            events_acknowledged=sum(each.acknowledged is not None for each in history.publications.values()),
            notifications=len(deliveries),
            notifications_expected=verdict.expected,
            redelivered=sum(each.redelivered for each in deliveries),
            lookups=len(history.lookups),
            wall_s=round(self._wall_s, 3),
        )


def _address(client: Client) -> str:
    return "" if client.broker is None else client.broker.address


def _now() -> int:
    return time.monotonic_ns() // 1000
