"""The scheme `lists`: papers A and B on any overlay that routes keys, corrected.

- A conjunction lies under each of its attributes (`entries`), where the hash says, placed by routing.
- An event collects what the lists of its attributes say (`collection`), in one of three modes, and so learns which
  conjunctions match. Every SubID that is sent is counted.
- The origin brings it to their homes: by routing to each, or by one walk round the ring where that is cheaper.

Homes check again what comes, so that a list may hold an old version for a while.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Key, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Reply
from meetpoint.errors import EventError
from meetpoint.language.events.msgpack import attributes_from_msgpack, attributes_to_msgpack
from meetpoint.language.filters.filter import Filter
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.cluster.config_epochs import ConfigEpochs
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.flow import Signal, all_set
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.base import PlacementScheme
from meetpoint.placement.dissemination.dissemination import ATTEMPT_US, PublishAttempt
from meetpoint.placement.dissemination.fanout import event_bytes, when_all
from meetpoint.placement.messages import Entry as Placed
from meetpoint.placement.messages import Stored, read_attributes
from meetpoint.placement.ownership.keyed_rpc import Reached
from meetpoint.schemes.lists.collection import (
    AttributeOrder,
    Group,
    ListStore,
    Lookup,
    coordinated,
    distributed_step,
    groups_of,
    homes_of,
    hybrid_step,
    is_walk_cheaper,
    pack_order,
    read_entry,
    read_order,
)
from meetpoint.schemes.lists.entries import entries_of, next_point, pack
from meetpoint.schemes.lists.messages import (
    ChainAck,
    ChainResult,
    ChainResultAck,
    ChainStep,
    DeliverToHomes,
    DeliverToHomesAck,
    ListQuery,
    ListReply,
)
from meetpoint.schemes.lists.subids import FlatEvent, SubId, conjunction_number
from meetpoint.schemes.lists.value_hash import PARTS, HashingVersions, read_cuts
from meetpoint.wording import counted

__all__ = ["Lists", "ListsSettings"]


RESULT_TIMEOUT_US: Final = SECOND_US
"""How long the origin may take to acknowledge a result."""
VALUE: Final = "value"
"""The name under which the value of a lookup travels."""
MOVED_MAX: Final = 50
MOVE_US: Final = 50_000
"""When other scales count, so many subscriptions are placed anew in so long a time."""
RECENT_MAX: Final = 1_024
"""Steps of chains that a node remembers to have begun: a request may come twice."""


class ListsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `lists`, the same for all nodes of a network."""

    mode: Literal["coordinated", "distributed", "hybrid"] = "coordinated"
    """How what the lists say is brought together."""
    hash: Literal["plain", "order"] = "plain"
    """Where numbers lie: anywhere, or in their order."""
    schema: str = ""
    """The schema of events, as YAML; without one, attributes are undeclared."""
    first: tuple[str, ...] = ()
    """Attributes in the order of their selectivity, the most selective first; else the largest domains come first."""
    quantiles: dict[str, tuple[float, ...]] = {}
    """By attribute, values that cut its events into equal parts: then `order` keeps skewed values balanced."""


class _ChainRun:
    """An attempt whose chain is under way, and the results of its groups."""

    __slots__ = ("attempt", "heard", "of")

    def __init__(self, attempt: PublishAttempt) -> None:
        self.attempt = attempt
        self.heard: dict[int, tuple[SubId, ...]] = {}
        self.of = 0


class Lists(PlacementScheme):
    """The scheme `lists` at one node."""

    def __init__(
        self, runtime: Runtime, overlay: Overlay, home_manager: HomeManager, node: NodeSettings, settings: ListsSettings
    ) -> None:
        self._settings = settings
        schema = Schema.from_yaml(settings.schema) if settings.schema else None
        self._hashings = HashingVersions(
            runtime.ring, schema, settings.quantiles, order_preserving=settings.hash == "order"
        )
        self._hashing = self._hashings.base
        self._order = AttributeOrder(self._hashing.schema, settings.first)
        self._store = ListStore(runtime)
        super().__init__(
            runtime, overlay, home_manager, node, self._store, straight=False
        )  # fmt: skip
        self._attempts = runtime.random.getrandbits(32)  # in each life others: a late word is of no attempt
        self._chains: dict[int, _ChainRun] = {}
        self._recent: dict[tuple[bytes, int, int, int], None] = {}
        self._epochs = ConfigEpochs(runtime, home_manager, self)
        if settings.hash == "order":
            home_manager.directory.payload = self._epochs
        self._rpc.do(ListQuery, self._answer_query)
        self._rpc.do(ChainStep, self._chain_step)
        self._rpc.do(DeliverToHomes, self._deliver_here)

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of the scheme's messages."""
        return {ChainResult: self._chain_result, **super().handlers()}  # type: ignore[dict-item]

    def tune(self, feedback: Feedback) -> None:
        """Ask for attributes in another order from now on, and propose other scales where values crowd."""
        self._order = AttributeOrder(self._hashing.schema, feedback.attribute_order())
        if self._settings.hash == "order":
            measured = feedback.cuts(PARTS)
            name = hashlib.blake2b(msgspec.msgpack.encode(measured), digest_size=8).digest()
            self._epochs.wish(name, lambda body: self._hashings.improved(body, measured))

    # -- scales (`rescaling`) ------------------------------------------------------------------------------------------

    @property
    def scales(self) -> tuple[bytes, ...]:
        """The versions of scales that this node goes by; several while one takes the place of another."""
        return self._epochs.bodies

    def home_started(self, home: Home) -> None:
        """Start a home, which goes by the scales that it went by before."""
        self._epochs.home_starts(home)
        super().home_started(home)
        if self._settings.hash == "order":
            self._epochs.review()

    def is_well_formed(self, body: bytes) -> bool:
        """Return whether a version of scales can be read."""
        return bool(read_cuts(body))

    def versions_changed(self) -> None:
        """Go by other scales than before, and take away what lies by one that does not count any more."""
        floor = self._hashings.counting[0]
        self._hashings.count(self._epochs.bodies)
        if self._hashings.counting[0] is not floor:
            for home in self._home_manager.homes.values():
                self.place_all(home)

    def place_all(self, home: Home) -> Signal[None]:
        """Place all subscriptions of a home by the scales that count now, some at a time."""
        todo = deque(home.filters)
        placed: list[Signal[None]] = []
        all_placed: Signal[None] = Signal()

        def place_some(_: object) -> None:
            if self._home_manager.homes.get(home.id) is not home:
                return
            now = [todo.popleft() for _ in range(min(MOVED_MAX, len(todo)))]
            placed.extend([self._placement.place(home, name) for name in now])
            if todo:
                self._runtime.sleep(MOVE_US).then(place_some)
            else:
                all_set(placed).then(all_placed.set)

        self._runtime.sleep(MOVE_US).then(place_some)  # a home that starts is not placed yet
        return all_placed

    def check(self) -> None:
        """Assert what must hold at all times."""
        super().check()
        self._epochs.check()

    # -- placing -------------------------------------------------------------------------------------------------------

    def _entries(self, home: HomeId, number: int, filter_: Filter, at: int) -> list[Placed]:
        conjunction, numbered = filter_.conjunctions[at], conjunction_number(number, at)
        counting = self._hashings.counting
        entries = dict.fromkeys(entry for each in counting for entry in entries_of(each, conjunction, home, numbered))
        return [Placed(entry.low, entry.high, pack(entry)) for entry in entries]

    def next_key(self, entry: Placed, after: bytes) -> bytes | None:
        read = read_entry(entry)
        if read is None:
            return None
        return next_point(self._hashings.with_scale(read.attribute, read.scale), read, after)

    def _accept(self, home: Home, name: str, entry: Placed, answer: Callable[[Message], None]) -> None:
        if read_entry(entry) is None:
            self._runtime.observe("entry_malformed")
        else:
            self._ownership.put(home, name, entry).then(lambda _: answer(Stored()))

    # -- collecting ----------------------------------------------------------------------------------------------------

    def _begin(self, attempt: PublishAttempt) -> None:
        flat = self._hashing.bits.flatten(attributes_of(attempt.content))
        order = pack_order(flat.values, self._order)
        first, *others = self._hashings.counting
        groups = groups_of(first, flat, read_order(flat.values, order) or self._order, others)
        if self._settings.mode == "coordinated":
            lookups = [lookup for group in groups for lookup in group.lookups]

            def collected(found: dict[str, dict[SubId, None]]) -> None:
                self._deliver(attempt, coordinated(found))

            attempt.on_end = self._query_lists(attempt.event, flat, lookups, collected)
            return
        self._attempts += 1
        number = self._attempts
        self._chains[number] = _ChainRun(attempt)
        attempt.on_end = lambda: (self._chains.pop(number, None), None)[1]
        names = self._hashings.names
        chain = ChainStep(self._runtime.me, number, 0, 0, attempt.event, attempt.content, (), order, names)
        self._pass_on(chain, groups[0])

    def _query_lists(
        self,
        event: EventKey,
        flat: FlatEvent,
        lookups: Iterable[Lookup],
        then: Callable[[dict[str, dict[SubId, None]]], None],
    ) -> Callable[[], None]:
        """Ask for lists, all at once; `then` gets what was found, by attribute. The callback returned stops it."""
        found: dict[str, dict[SubId, None]] = {}
        numbers: list[int] = []
        attributes = self._hashing.bits.declare(flat.values)
        wanted = list(lookups)

        def answered(attribute: str, message: Message, from_afar: bool) -> None:
            if isinstance(message, ListReply):
                self._count(event, message.sub_ids, from_afar)
                found.setdefault(attribute, {}).update(dict.fromkeys(message.sub_ids))

        done = when_all(len(wanted), lambda: then(found))
        for lookup in wanted:
            value = flat.values.get(lookup.attribute, True)
            collect = ListQuery(
                lookup.attribute, lookup.sorts, attributes_to_msgpack({VALUE: value}), attributes  # type: ignore[dict-item]
            )  # fmt: skip
            number = self._rpc.run(lookup.key, lookup.key, collect, done, answered=partial(answered, lookup.attribute))
            numbers.append(number)

        def stop() -> None:
            for number in numbers:
                self._rpc.stop(number)

        return stop

    def _answer_query(
        self, home: Home, reached: Reached, collect: ListQuery, answer: Callable[[Message], None]
    ) -> None:
        """Answer what the lists of a home here say at a key."""
        try:
            value = attributes_from_msgpack(collect.value).get(VALUE)
        except EventError:
            self._runtime.observe("event_malformed")
            return
        if value is None:
            self._runtime.observe("event_malformed")
            return
        names = self._hashing.bits.spread(collect.attributes)
        flat = FlatEvent({collect.attribute: value}, names)
        lookup = Lookup(Key(reached.key), collect.attribute, collect.sorts)
        answer(ListReply(tuple(self._store.lists[home.id].answer(lookup, flat))))

    def _count(self, event: EventKey, sub_ids: Sequence[SubId] | Sequence[int], from_afar: bool) -> None:
        if sub_ids and from_afar:
            self._runtime.observe("subids_sent", len(sub_ids), event_bytes(event))

    # -- chains: distributed and hybrid --------------------------------------------------------------------------------

    def _pass_on(self, chain: ChainStep, group: Group) -> None:
        key = group.lookups[0].key
        self._rpc.run(key, key, chain, lambda: None)

    def _chain_step(self, home: Home, reached: Reached, chain: ChainStep, answer: Callable[[Message], None]) -> None:
        """Lead a group of an event's lookups."""
        attributes = read_attributes(self._runtime, chain.content)
        if attributes is None:
            return
        flat = self._hashing.bits.flatten(attributes)
        hashings = self._hashings.named(chain.scales, self._epochs.known)
        if hashings is None:
            self._runtime.observe("scale_unknown")  # the request comes again, or another attempt
            if chain.origin.id != self._runtime.me.id:
                self._home_manager.directory.compare(chain.origin)
            return
        first, *others = hashings
        order = read_order(flat.values, chain.order)
        groups = [] if order is None else groups_of(first, flat, order, others)
        if not (0 <= chain.group < len(groups) and 0 <= chain.told <= chain.group):
            self._runtime.observe("event_malformed")
            return
        answer(ChainAck())
        step = (chain.origin.id, chain.origin.incarnation, chain.attempt, chain.group)
        if step in self._recent:
            return
        self._recent[step] = None
        if len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        self._count(chain.event, chain.sub_ids, reached.hops > 0)
        group = groups[chain.group]

        def collected(found: dict[str, dict[SubId, None]]) -> None:
            self._filter(chain, groups, list(found.get(group.attribute, ())))

        stop = self._query_lists(chain.event, flat, group.lookups, collected)
        self._runtime.after(ATTEMPT_US, stop)

    def _filter(self, chain: ChainStep, groups: Sequence[Group], local: list[SubId]) -> None:
        """Filter what a group's lists say, tell the origin what is certain, and pass the rest on."""
        bits = self._hashing.bits
        own = bits.gather([groups[chain.group].attribute])
        checked = bits.gather(group.attribute for group in groups[: chain.group])
        is_last = chain.group + 1 == len(groups)
        if self._settings.mode == "hybrid":
            done, rest = hybrid_step(chain.sub_ids, local, own, checked)
        else:
            rest = distributed_step(chain.sub_ids, local, own, checked)
            done, rest = (rest, []) if is_last else ([], rest)
        told = chain.told + bool(done or is_last)
        if done or is_last:
            self._send_result(chain, ChainResult(0, chain.attempt, chain.group, told if is_last else 0, tuple(done)))
        if not is_last:
            onward = ChainStep(
                chain.origin, chain.attempt, chain.group + 1, told, chain.event, chain.content, tuple(rest),
                chain.order, chain.scales,
            )  # fmt: skip
            self._pass_on(onward, groups[chain.group + 1])

    def _send_result(self, chain: ChainStep, told: ChainResult) -> None:
        """Tell the origin a result, until it has acknowledged it or the attempt is over."""
        if chain.origin.id == self._runtime.me.id:
            self._take_result(told)
            return
        until = self._runtime.now + ATTEMPT_US
        self._count(chain.event, told.sub_ids, True)

        def ask() -> None:
            self._runtime.ask(chain.origin, told, RESULT_TIMEOUT_US).then(answered)

        def answered(reply: Reply | None) -> None:
            if not isinstance(reply, ChainResultAck) and self._runtime.now < until:
                self._runtime.after(RESULT_TIMEOUT_US // 4, ask)  # at once, it would be lost as soon again

        ask()

    def _chain_result(self, source: Peer, told: ChainResult) -> None:
        self._runtime.send(source, ChainResultAck(told.request))
        self._take_result(told)

    def _take_result(self, told: ChainResult) -> None:
        run = self._chains.get(told.attempt)
        if run is None:
            return  # of an attempt that is over
        run.heard[told.group] = told.sub_ids
        run.of = max(run.of, told.of)
        if len(run.heard) == run.of:
            del self._chains[told.attempt]
            matched = dict.fromkeys(sub_id for sub_ids in run.heard.values() for sub_id in sub_ids)
            self._deliver(run.attempt, list(matched))

    # -- delivering ----------------------------------------------------------------------------------------------------

    def _deliver(self, attempt: PublishAttempt, sub_ids: Sequence[SubId]) -> None:
        """Bring an event to the homes of SubIDs; what routing does not reach, directly."""
        if not attempt.alive:
            return
        left = {home: tuple(numbers) for home, numbers in homes_of(sub_ids).items()}
        attempt.may_reach = left.__contains__
        if self._runtime.tracing:
            told = f"the lists named {counted(len(sub_ids), 'subscription')} of {counted(len(left), 'home')}"
            self._runtime.trace(attempt.event, "visited", detail=told)
        if is_walk_cheaper(len(left), len(self._home_manager.directory.others()) + 1):
            self._runtime.observe("event_walked")
            me = self._runtime.me.id
            ways = [(bytes(self._runtime.ring.add(me, 1)), bytes(me), tuple(left.items()))]
        else:
            ways = [(bytes(home), bytes(home), ((home, numbers),)) for home, numbers in left.items()]
        done = when_all(len(ways), lambda: self._bring_the_rest(attempt, dict(left), ATTEMPT_US))
        running: list[int] = []

        def answered(message: Message, from_afar: bool) -> None:
            if isinstance(message, DeliverToHomesAck):
                for home in message.homes:
                    left.pop(home, None)

        def stop() -> None:
            for number in running:
                self._rpc.stop(number)

        attempt.on_end = stop
        for first, last, homes in ways:
            deliver = DeliverToHomes(attempt.event, attempt.floor, homes, attempt.content)
            running.append(self._rpc.run(first, last, deliver, done, answered=answered))
        if not ways:
            attempt.complete()

    def _deliver_here(
        self, home: Home, reached: Reached, deliver: DeliverToHomes, answer: Callable[[Message], None]
    ) -> None:
        """Hand an event to the homes here that it is for."""
        self._count(deliver.event, [number for _, numbers in deliver.homes for number in numbers], reached.hops > 0)
        here = [self._home_manager.homes[each] for each, _ in deliver.homes if each in self._home_manager.homes]
        has: list[HomeId] = []

        def taken(each: HomeId, _: object) -> None:
            has.append(each)
            if len(has) == len(here):
                answer(DeliverToHomesAck(tuple(has)))

        if not here:
            answer(DeliverToHomesAck(()))
        for each in here:
            each.skip_to(deliver.event, deliver.settled)
            each.take(deliver.event, deliver.content).then(partial(taken, each.id))
