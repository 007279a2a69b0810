"""The queries that a broker answers without its node: its peers, its status, its subscriptions, its journal and its
traces.

Files are read by threads, of which the loop has a handful for everything, also for resolving the addresses of other
brokers and for writing to the archive. So `FairQueue` reads few files at a time, and one per client: a client that asks
a lot at once never takes the threads of others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from importlib.metadata import version
from time import monotonic
from typing import Final

from meetpoint.api.client_messages import (
    PAGE_MAX,
    Broker,
    BrokersReply,
    BrokersRequest,
    BrokerStatus,
    DeadLetterInfo,
    DeadLettersReply,
    DeadLettersRequest,
    Discard,
    Follow,
    FollowedRequest,
    HistoryRequest,
    HostedSubscription,
    JournalEntry,
    JournalReply,
    JournalRequest,
    ProgressReply,
    ProgressRequest,
    RecentRequest,
    ResponseBody,
    SchemaReply,
    SchemaRequest,
    StatusRequest,
    StreamsRequest,
    SubscriptionsReply,
    SubscriptionsRequest,
    TreePart,
    ViewReply,
    ViewRequest,
)
from meetpoint.api.codec import Codec
from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.api.requests import Forget
from meetpoint.broker.clients.registry import ClientRegistry
from meetpoint.broker.clients.session import Session
from meetpoint.broker.clock import Clock
from meetpoint.broker.config import BrokerConfig
from meetpoint.broker.observe.metrics import Counts, MatchRates
from meetpoint.broker.observe.tracing import EventTracer, RecentEvents, StepHooks, TracingError
from meetpoint.broker.storage import JournalLine, Store
from meetpoint.catalog.catalog import links_of, regions_of, tree_of
from meetpoint.node.node import Node

__all__ = ["BrokerQueries", "FairQueue", "Introspection"]


class _ClientQueue:
    """The waiting reads of one client."""

    def __init__(self) -> None:
        self.next: Final = asyncio.Lock()
        self.length = 0


class FairQueue:
    """Reads files for clients, few at a time and one per client."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._queues: dict[str, _ClientQueue] = {}
        self._reading: set[asyncio.Task[None]] = set()

    def read(self, session: Session, request: int, work: Callable[[], ResponseBody]) -> None:
        """Answer a request with the result of work in a thread, in order; `work` raises nothing."""
        task = asyncio.get_running_loop().create_task(self._answer(session, request, work))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _answer(self, session: Session, request: int, work: Callable[[], ResponseBody]) -> None:
        queue = self._queues.setdefault(session.key, _ClientQueue())
        queue.length += 1
        try:
            async with queue.next, self._free:
                if session.connection.is_over:  # nobody waits for it any longer
                    return
                word = await asyncio.to_thread(work)
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[session.key]
        session.answer(request, word)

    async def close(self) -> None:
        """Wait for reads that are under way."""
        if self._reading:
            await asyncio.wait(set(self._reading))


ID_MAX: Final = 1_000
"""The longest id of an event that is followed, in characters."""
TREE_MAX: Final = 4_096
"""Number of regions of a tree that an answer lists, the largest first."""
THREADS_MAX: Final = 4_000


class Introspection:
    """Answers queries about this broker's part of the network, and about single events."""

    def __init__(self, node: Node, codec: Codec, config: BrokerConfig, clock: Clock, hooks: StepHooks) -> None:
        self._node = node
        self._config = config
        self._clock = clock
        self._tracer = tracer = EventTracer(node, codec)
        self._recent_events = recent_events = RecentEvents()
        tracer.on_change = lambda is_on: hooks.set("follower", tracer.on_step if is_on else None)
        recent_events.on_change = lambda is_on: hooks.set("recents", recent_events.on_step if is_on else None)
        self.hooks = hooks
        self.state: Callable[[], str] = lambda: node.state

    def view(self, session: Session, request: int, what: ViewRequest) -> None:
        """Tell this broker's links, regions and tree."""
        node, config = self._node, self._config
        overlay = node.overlay.view()
        tree = tree_of(node.scheme)
        session.answer(
            request,
            ViewReply(
                node.me,
                self.state(),
                config.network,
                config.overlay,
                config.scheme,
                links_of(overlay),
                regions_of(overlay),
                None if tree is None else tuple(TreePart(*each) for each in tree[:TREE_MAX]),
            ),
        )

    def recent(self, session: Session, request: int, what: RecentRequest) -> None:
        """Tell the events since the last question."""
        session.answer(request, self._recent_events.since(what.after, self._clock.now()))

    def follow(self, session: Session, request: int, what: Follow) -> None:
        """Follow an event from now on."""
        if not 0 < len(what.id) <= ID_MAX or not what.seconds > 0:
            reason = f"give an id of 1 to {ID_MAX} characters, and seconds above 0"
            session.answer(request, Refused(reason, retry=False))
            return
        try:
            self._tracer.follow(what.id, what.seconds, self._clock.now())
        except TracingError as error:
            session.answer(request, Refused(str(error), retry=True))
            return
        session.answer(request, Stored())

    def followed(self, session: Session, request: int, what: FollowedRequest) -> None:
        """Tell what was seen of a followed event."""
        found = self._tracer.followed(what.id, what.threads[:THREADS_MAX], self._clock.now())
        if found is None:
            reason = "this event is not followed here, or not any longer; follow it, then publish it"
            session.answer(request, Refused(reason, retry=False))
        else:
            session.answer(request, found)


VERSION: Final = version("meetpoint")
_BEFORE_READY: Final = frozenset({"new", "starting", "joining", "recovering"})
"""States of a node that may not have restored its homes."""
PAGE_BYTES: Final = 512 << 10
"""About how many bytes an answer lists."""


class BrokerQueries:
    """Answers queries from the tables of the node, the store and the metrics."""

    def __init__(
        self,
        node: Node,
        store: Store,
        clients: ClientRegistry,
        counts: Counts,
        clock: Clock,
        rates: MatchRates,
        introspection: Introspection,
        scheme: str,
    ) -> None:
        self._node = node
        self._clock = clock
        self._rates = rates
        self._hooks = introspection.hooks
        self._store = store
        self._clients = clients
        self._counts = counts
        self._scheme = scheme
        self._since = monotonic()
        self._turns = FairQueue(1)
        self.state: Callable[[], str] = lambda: node.state
        clients.query_handlers = {
            BrokersRequest: self._brokers,
            StatusRequest: self._status,
            SubscriptionsRequest: self._subscriptions,
            DeadLettersRequest: self._dead_letters,
            Discard: self._discard,
            JournalRequest: self._journal,
            SchemaRequest: self._schema,
            ProgressRequest: self._progress,
            StreamsRequest: _no_archive,
            HistoryRequest: _no_archive,
            ViewRequest: introspection.view,
            Follow: introspection.follow,
            FollowedRequest: introspection.followed,
            RecentRequest: introspection.recent,
        }

    def brokers(self) -> tuple[Broker, ...]:
        """Return all brokers that this one knows of, itself first."""
        me = self._node.me
        homes: dict[NodeId, int] = {me.id: 0}
        hosts: dict[NodeId, Peer] = {}
        for entry in self._node.directory.entries():
            if not entry.gone:
                homes[entry.host.id] = homes.get(entry.host.id, 0) + 1
                known = hosts.get(entry.host.id)
                if known is None or known.incarnation < entry.host.incarnation:
                    hosts[entry.host.id] = entry.host
        hosts[me.id] = me
        others = sorted(id_ for id_ in hosts if id_ != me.id)
        return tuple(Broker(hosts[id_], homes[id_]) for id_ in (me.id, *others))

    def _brokers(self, session: Session, request: int, what: BrokersRequest) -> None:
        session.answer(request, BrokersReply(self.brokers()))

    def _status(self, session: Session, request: int, what: StatusRequest) -> None:
        session.answer(
            request,
            BrokerStatus(
                self._node.me,
                self.state(),
                self._scheme,
                VERSION,
                monotonic() - self._since,
                self._counts.numbers(),
            ),
        )

    def _has_homes(self, session: Session, request: int) -> bool:
        """Return whether the homes here are restored; refuse the request for now where they are not.

        A broker that restarts would otherwise answer that it holds nothing, and callers would believe it.
        """
        if self._node.state not in _BEFORE_READY:
            return True
        session.answer(request, Refused(f"this broker is {self._node.state}; ask again when it is ready", retry=True))
        return False

    def _subscriptions(self, session: Session, request: int, what: SubscriptionsRequest) -> None:
        if not self._has_homes(session, request):
            return
        found = self._node.held_subscriptions(what.owner, what.labels, what.after, PAGE_MAX + 1)
        page: list[HostedSubscription] = []
        size = 0
        now, since = self._clock.now(), self._rates.since_us if self._hooks.has_tracing else 0
        for each in found[:PAGE_MAX]:
            rate = self._rates.of(each.name, now)
            page.append(
                HostedSubscription(
                    each.name, each.filter, each.terms, each.queued, each.is_present, each.subscribed_us,
                    rate.total, rate.lately, rate.last_us, since,
                )
            )  # fmt: skip
            size += len(each.filter) * 4 + 256
            if size > PAGE_BYTES:
                break
        session.answer(request, SubscriptionsReply(tuple(page), len(page) < len(found)))

    def _dead_letters(self, session: Session, request: int, what: DeadLettersRequest) -> None:
        if not self._has_homes(session, request):
            return
        policy = session.policy
        within = "" if policy is None or policy.sees_all else policy.scope.prefix
        found = self._node.dead_letters(what.name, what.after, PAGE_MAX + 1, within)
        page: list[DeadLetterInfo] = []
        size = 0
        for each in found[:PAGE_MAX]:
            size += len(each.content) + 256
            if page and size > PAGE_BYTES:
                break
            page.append(DeadLetterInfo(each.event, each.names, each.content, each.reason, each.at_us))
        session.answer(request, DeadLettersReply(tuple(page), len(page) < len(found)))

    def _discard(self, session: Session, request: int, what: Discard) -> None:
        self._clients.ask(session, request, Forget(what.event))

    def _schema(self, session: Session, request: int, what: SchemaRequest) -> None:
        schema = self._node.schema
        session.answer(request, SchemaReply("" if schema is None else schema.to_yaml()))

    def _progress(self, session: Session, request: int, what: ProgressRequest) -> None:
        if self._has_homes(session, request):
            session.answer(request, ProgressReply(self._node.progress(what.publisher)))

    def _journal(self, session: Session, request: int, what: JournalRequest) -> None:
        self._turns.read(session, request, lambda: self._read_journal(what))

    def _read_journal(self, what: JournalRequest) -> ResponseBody:
        """Look through all files of the journal, in a thread."""
        try:
            return JournalReply(tuple(_lines(self._store.journal(what.id, what.key))))
        except OSError as error:
            self._clients.log.write(logging.ERROR, "journal_unreadable", problem=str(error))
            return Refused(f"the journal could not be read: {error}", retry=True)

    async def close(self) -> None:
        """Wait for reads that are under way."""
        await self._turns.close()


def _no_archive(session: Session, request: int, what: StreamsRequest | HistoryRequest) -> None:
    """Refuse a query of the archive, where there is none."""
    todo = "set archive.folder in its configuration, or say meetpoint up --archive"
    session.answer(request, Refused(f"this broker keeps no archive; {todo}", retry=False))


def _lines(found: list[JournalLine]) -> list[JournalEntry]:
    """Return the first entries of an event's journal, as far as they fit an answer."""
    lines: list[JournalEntry] = []
    size = 0
    for each in found:
        size += len(each.content) + sum(map(len, each.names)) * 4 + len(each.detail) * 4 + 256
        if lines and size > PAGE_BYTES:
            break
        lines.append(JournalEntry(each.at_us, each.event, each.step, each.home, each.names, each.detail, each.content))
    return lines
