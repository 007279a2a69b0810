"""A broker: a node with sockets, a disk and a clock.

A broker runs in the event loop that starts it, and several may run in one. Its life:

  start        the store is opened, the port listens, a broker of the network is found; then the node starts
  ready        the node serves (`is_ready`, /readyz); before, it holds requests for a while
  stop         no new requests; those that were asked are answered and on disk; then everything is closed
  leave        everything is handed over to other brokers first
  failed       the disk failed, or the node found itself broken: everything is dropped at once, as in a crash
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from meetpoint.api.ids import HomeId, NodeId, Peer
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.api.requests import Declare, Leave
from meetpoint.broker.clients.authorization import Authorizer
from meetpoint.broker.clients.broker_queries import BrokerQueries, Introspection
from meetpoint.broker.clients.registry import ClientRegistry
from meetpoint.broker.clock import Clock
from meetpoint.broker.config import BrokerConfig, BrokerError, parse_address
from meetpoint.broker.driver import Driver, FeedbackLoader
from meetpoint.broker.listener import Listener
from meetpoint.broker.observe.logs import Log, Refusals
from meetpoint.broker.observe.metrics import Counts
from meetpoint.broker.observe.tracing import StepHooks
from meetpoint.broker.peers.links import PeerLinks
from meetpoint.broker.startup import Bootstrap, advice, advice_on_tls, check_records, open_archive, read_schema, warm_up
from meetpoint.broker.storage import Store, StoreState
from meetpoint.broker.transport.connection import FlushScheduler
from meetpoint.broker.transport.sockets import listen_at
from meetpoint.broker.transport.tls import TlsPolicy
from meetpoint.catalog import make_codec, make_node
from meetpoint.errors import MeetpointError, need_extra
from meetpoint.node.cluster.directory import PREFIX
from meetpoint.node.node import Node
from meetpoint.node.runtime.inputs import ContactsFound, Started

if TYPE_CHECKING:
    from meetpoint.archive import Archive
    from meetpoint.broker.admin import Admin
    from meetpoint.broker.archive import ArchiveQueries, Archiver

__all__ = ["DONE", "FAILED", "Broker"]

DONE: Final = 0
FAILED: Final = 70
"""Exit codes of a process that ran a broker: as it should, or its disk or its node failed (EX_SOFTWARE)."""
TICK_S: Final = 0.5
"""How often connections are checked for stalls."""
JOIN_RETRY_S: Final = 0.5
JOIN_RETRY_S_MAX: Final = 8.0
CLOCK_S: Final = 1.0
"""A change of the machine's clock above this is logged."""
DRAIN_CHECK_S: Final = 0.01
RATES_SPARE: Final = 1_000
"""Number of ended subscriptions whose match rates are remembered."""


class Broker:
    """A broker of a network."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.counts = Counts()
        self.log = Log()
        self.refusals = Refusals(self.counts, self.log)
        self.exit_code: int | None = None
        """The exit code, once the broker has ended."""
        self.failure = ""
        self.node: Node
        self._clock = Clock()
        self._clock_offset_s = 0.0
        self._is_started = False
        self._is_left = False
        self._is_leaving = False
        self._draining: asyncio.Task[None] | None = None
        self._is_built = False
        self._feedback: FeedbackLoader | None = None
        self._archiver: Archiver | None = None
        self._archive_queries: ArchiveQueries | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._homes: tuple[HomeId, ...] = ()
        self._why_not = "it is starting"
        self._has_begun = False
        self._tick_timer: asyncio.TimerHandle | None = None
        self._ready_waiters: list[asyncio.Future[None]] = []

    # -- starting ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and begin or join a network; raise BrokerError or StoreError where that is impossible.

        Returns when the node has started, or when no broker of `join` could be reached so far, which is then tried on
        and on. `wait_ready` waits until clients are served.
        """
        assert not self._is_started, "a broker starts once; make another one"
        self._is_started = True
        config = self.config
        loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[int] = loop.create_future()
        schema = read_schema(config.schema)
        self._tls_policy = TlsPolicy(config)
        self._authorizer = Authorizer(config, self.log)
        with contextlib.ExitStack() as undo:
            sock = listen_at(parse_address(config.listen, "listen"), "listen")
            undo.callback(sock.close)
            store = self._store = Store.open(
                Path(config.data) if config.data is not None else None, journal_lines=max(1, config.journal_lines)
            )
            undo.callback(store.close)
            self.address = config.advertise or str(
                parse_address(config.listen, "listen")._replace(port=sock.getsockname()[1])
            )
            names = [known.name for known in (self._tls_policy.identity, store.identity) if known is not None]
            self.name = config.name or next(iter(names), self.address)
            self._tls_policy.check_name(self.name)
            self.log.broker = self.name
            store.set_identity(self.name, config.network, config.network_config().scheme)
            check_records(config, store.recovered.records)
            archive = open_archive(config, self.name)
            undo.pop_all()
        self._build(loop)
        if archive is not None:
            self._begin_archiving(archive)
        self._loop = loop
        store.start(self._on_persisted, self._on_state)
        try:
            await self._listener.open(sock)
            await self._open_admin()
            await warm_up(config, store.recovered.records, self.log, self._spawn)
            contacts = await self._bootstrap.find()
        except BaseException:
            await self._close(DONE)
            raise
        self._tick()
        if contacts is not None:
            self._begin(contacts)
        if config.join:
            self._spawn(self._retry_bootstrap())
        if schema is not None:
            self._spawn(self._declare(schema))

    def _build(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self.config
        network = config.network_config()
        if config.archive.folder is not None:  # streams that begin now are not those of a broker whose data is gone
            node = msgspec.structs.replace(network.node, first_stream=self._clock.now() // 1_000)
            network = msgspec.structs.replace(network, node=node)
        me = Peer(NodeId(network.ring.hash(self.name.encode())), self.address)
        scheduler = self._scheduler = FlushScheduler(loop)
        codec = make_codec()
        self.node = make_node(network, me, random.SystemRandom().getrandbits(63), codec)
        self._driver = Driver(
            self.node, self._clock, self._store, scheduler, self.counts, self.log, self._on_left, self._fail
        )  # fmt: skip
        self._links = PeerLinks(
            config, self._tls_policy, scheduler, codec, self.counts, self.log, self.refusals, me, self._driver.submit
        )  # fmt: skip
        self._bootstrap = Bootstrap(
            config, self._tls_policy, scheduler, self.refusals, self.log, me, self._knows_others(me), self._note_why_not
        )  # fmt: skip
        self._clients = ClientRegistry(
            self.node, config.limits, self.counts, self.log, self.refusals, self._authorizer, self._driver.submit
        )
        self._driver.peers = self._links
        self._driver.clients = self._clients
        introspection = Introspection(
            self.node, codec, config, self._clock, StepHooks(self.node, self._driver.set_hook)
        )
        self._queries = BrokerQueries(
            self.node,
            self._store,
            self._clients,
            self.counts,
            self._clock,
            self._driver.rates,
            introspection,
            config.scheme,
        )
        self._queries.state = introspection.state = lambda: self.state
        self._listener = Listener(
            config, self._tls_policy, scheduler, self.counts, self._links, self._clients, self.node
        )
        if config.feedback is not None:
            self._feedback = FeedbackLoader(config.feedback, self.counts, self.log, self._driver.submit)
        scheduler.checks.append(self._check)
        self.counts.gauges = self._gauges
        self._admin: Admin | None = None
        self._is_built = True

    def _begin_archiving(self, archive: Archive) -> None:
        from meetpoint.broker.archive import (
            ArchiveQueries,
            Archiver,  # which needs pyarrow, as
        )

        config = self.config
        self._archiver = Archiver(
            config.archive, archive, self._clock, self.node, self.counts, self.log, self._driver.submit,
            has_tenants=self._clients.authorizer.is_guarded,
        )  # fmt: skip
        self._driver.archive = self._archiver.take
        self._archive_queries = ArchiveQueries(self.node, archive, self._clients)

    async def _open_admin(self) -> None:
        if self.config.admin_address is not None:
            need_extra("broker")
            from meetpoint.broker.admin import Admin

            self._admin = Admin(
                self.config, self.counts, self._clients.authorizer, self.refusals,
                lambda: self.why_not_ready, lambda: self.failure,
            )  # fmt: skip
            await self._admin.open()

    @property
    def admin_address(self) -> str | None:
        """The address where HTTP is served."""
        return None if self._admin is None else self._admin.address

    def reload(self) -> None:
        """Read certificates, keys of tokens and revocations again; open connections stay unless revoked."""
        if not self._is_built:
            return  # it reads them in a moment
        parts: list[Callable[[], None]] = [self._tls_policy.reload, self._clients.authorizer.reload]
        if self._admin is not None:
            parts.append(self._admin.reload)
        for part in parts:
            try:
                part()
            except MeetpointError as error:
                self.log.write(logging.ERROR, "reload_refused", problem=str(error))
                return
        self._links.check_certificates()
        self._clients.recheck_tokens()
        self.log.write(logging.INFO, "reloaded")
        self._log_advice()

    def _log_advice(self) -> None:
        for said in (*advice(self.config), *advice_on_tls(self.config, self._tls_policy, self.address)):
            self.log.write(logging.WARNING, "settings", **said._asdict())

    # -- finding the network -------------------------------------------------------------------------------------------

    def _knows_others(self, me: Peer) -> bool:
        """Return whether the disk names other brokers, so that no address need be configured."""
        notes = [record.name for record in self._store.recovered.records if record.home == b""]
        return any(name.startswith(PREFIX) and name != PREFIX + me.id.hex() for name in notes)

    def _note_why_not(self, reason: str) -> None:
        if not self._has_begun:
            self._why_not = reason

    async def _retry_bootstrap(self) -> None:
        """Ask the brokers of `join` again while this one is in no network.

        The one that answered first may not be in it either, and wait for this one.
        """
        wait_s = JOIN_RETRY_S
        while not self._has_begun or self.node.state in ("new", "starting", "joining"):
            await asyncio.sleep(wait_s)
            try:
                contacts = await self._bootstrap.find()
            except MeetpointError as error:
                self.log.write(logging.CRITICAL, "join_refused", problem=str(error))
                if not self._has_begun:
                    self._fail(str(error))
                return
            if self._has_begun:
                wait_s = min(JOIN_RETRY_S_MAX, 2 * wait_s)
                self._driver.submit(ContactsFound(contacts or ()))
            elif contacts is not None:
                self._begin(contacts)

    def _begin(self, contacts: tuple[Peer, ...]) -> None:
        recovered = self._store.recovered
        records = recovered.records
        if recovered.damaged:
            names = ", ".join(name for _, name in recovered.damaged[:5])
            self.log.write(logging.ERROR, "records_damaged", count=len(recovered.damaged), first=names)
        is_new = not recovered.records and not recovered.damaged
        founders = (self.node.me,) if is_new and not self.config.join else ()
        self.log.write(
            logging.INFO, "started", address=self.address, network=self.config.network, overlay=self.config.overlay,
            scheme=self.config.scheme, records=len(records), contacts=len(contacts),
        )  # fmt: skip
        self._log_advice()
        self._why_not = ""
        self._has_begun = True
        self._driver.submit(Started(records, founders, contacts))

    async def _declare(self, schema: str) -> None:
        """Declare the configured schema to the network; repeat until that is accepted or refused."""
        while True:
            outcome = await self._clients.ask_self(Declare(schema))
            if isinstance(outcome, Refused) and outcome.retry:
                await asyncio.sleep(JOIN_RETRY_S)
                continue
            if isinstance(outcome, Refused):
                self.log.write(logging.ERROR, "schema_refused", file=self.config.schema, reason=outcome.reason)
            return

    # -- what the store tells, in its thread ---------------------------------------------------------------------------

    def _on_persisted(self, ticket: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._driver.persisted, ticket)

    def _on_state(self, state: StoreState) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._store_changed, state)

    def _store_changed(self, state: StoreState) -> None:
        if state.failed:
            self.log.write(logging.CRITICAL, "store_failed", problem=state.failed)
            self._fail(state.failed)
        elif state.full != self._clients.is_full:
            self._clients.is_full = state.full
            level = logging.ERROR if state.full else logging.INFO
            self.log.write(level, "disk_full" if state.full else "disk_has_room", data=self.config.data)
            if state.full:
                self._clients.withdraw()
                self._clients.release()  # they are to hear that nothing is taken

    # -- at the end of every turn --------------------------------------------------------------------------------------

    def _check(self) -> None:
        hosting = self.node.home_manager
        homes = tuple(hosting.homes)
        if homes != self._homes:
            gone = set(self._homes) - set(homes)
            self._homes = homes
            if gone:
                away = [name for name in self._clients.names() if hosting.find(name) is None]
                self._clients.moved(away, "its home moves to another broker")
        limits = self.config.limits
        clients = self._clients
        unacknowledged = self._unacknowledged()
        unsynced = self._driver.unsynced
        if clients.is_congested:
            if unacknowledged <= limits.unsettled_events // 2 and unsynced <= limits.unsynced_writes // 2:
                clients.is_congested = False
                clients.release()
        elif (unacknowledged > limits.unsettled_events or unsynced > limits.unsynced_writes) and not clients.is_full:
            clients.is_congested = True
        if self._ready_waiters and self.is_ready:
            self._resolve_ready_waiters()

    def _unacknowledged(self) -> int:
        on_their_way = sum([len(home.outbox) for home in self.node.home_manager.homes.values()])
        return on_their_way if self._archiver is None else max(on_their_way, self._archiver.waiting)

    def _tick(self) -> None:
        now = self._loop.time()
        self._check_clock()
        self._links.tick(now)
        self._clients.tick(now)
        self.refusals.tick()
        self._prune_rates()
        if self._feedback is not None:
            self._feedback.tick()
        limits = self.config.limits
        wait_s = min(TICK_S, limits.frame_s / 4, limits.stall_s / 4)
        self._tick_timer = self._loop.call_later(wait_s, self._tick)

    def _prune_rates(self) -> None:
        rates, homes = self._driver.rates, self.node.home_manager.homes.values()
        if len(rates) > 2 * sum(len(home.filters) for home in homes) + RATES_SPARE:
            rates.keep(name for home in homes for name in home.filters)

    def _check_clock(self) -> None:
        off_s = self._clock.off_s
        if abs(off_s - self._clock_offset_s) > CLOCK_S:
            self._clock_offset_s = off_s
            todo = "nothing, but its times are by the clock as it was; restart it when convenient"
            self.log.write(logging.WARNING, "clock_set", off_s=round(off_s, 3), todo=todo)

    # -- how it is -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The node's state, or why there is none."""
        if self.exit_code is not None:
            return "failed" if self.failure else "stopped"
        if self._draining is not None:
            return "stopping"
        return self.node.state

    @property
    def why_not_ready(self) -> str:
        """The reason why clients are not served; empty where they are."""
        if self.failure:
            return self.failure
        if self._draining is not None or self.exit_code is not None:
            return "it stops"
        if self._why_not:
            return self._why_not
        if self.node.state != "ready":
            return f"its node is {self.node.state}"
        if self._clients.is_full:
            return "its disk is full"
        return ""

    @property
    def is_ready(self) -> bool:
        """Whether clients are served."""
        return not self.why_not_ready

    async def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until clients are served; raise TimeoutError, or BrokerError where they never will be."""
        if self.is_ready:
            return
        if self.exit_code is not None:
            raise BrokerError(self.failure or "the broker has stopped")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready_waiters.append(future)
        try:
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise TimeoutError(f"the broker {self.name} is not ready: {self.why_not_ready}") from None
        finally:
            with contextlib.suppress(ValueError):
                self._ready_waiters.remove(future)

    def _resolve_ready_waiters(self) -> None:
        waiters, self._ready_waiters = self._ready_waiters, []
        for future in waiters:
            if future.done():
                continue
            if self.exit_code is None:
                future.set_result(None)
            else:
                future.set_exception(BrokerError(self.failure or "the broker has stopped"))

    def _gauges(self) -> dict[str, float]:
        view = self.node.snapshot()
        measures = self._store.measures
        found: dict[str, float] = {
            "ready": self.is_ready,
            "clients": len(self._clients.sessions),
            "peers_in": len(self._links.inbound),
            "peers_out": self._links.open,
            "homes": len(view.homes),
            "subscriptions": view.subscriptions,
            "unsettled_events": view.outbox,
            "queued_events": view.queued,
            "unsafe_writes": view.unsafe,
            "copies": view.copies,
            "waiting": view.waiting,
            "held_back_notifications": self._clients.held_back,
            "client_queue_bytes": self._clients.queued_bytes,
            "peer_queue_bytes": self._links.queued_bytes,
            "unanswered_requests": self._clients.unanswered,
            "unsynced_writes": self._driver.unsynced,
            "timers": self._driver.timers,
            "store_queue": measures.queued,
            "store_commits": measures.commits,
            "store_commit_seconds": measures.commit_seconds,
            "store_bytes": measures.bytes,
            "disk_full": measures.full,
            "clock_off_seconds": self._clock.off_s,
            "unarchived_events": 0 if self._archiver is None else self._archiver.waiting,
            "certificate_expires_seconds": self._tls_policy.expires,
        }
        return {name: float(value) for name, value in found.items()}

    # -- ending --------------------------------------------------------------------------------------------------------

    async def stop(self, drain: bool = True) -> None:
        """Answer what was asked, have it on disk, and close; without `drain`, close at once.

        A second call with `drain=False` cuts short a drain that is under way.
        """
        if not self._is_built:
            return
        if self._draining is None and drain and self.exit_code is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        if self._draining is not None:
            if not drain:
                self._draining.cancel()
            await asyncio.wait([self._draining])
        await self._close(DONE)
        await self.wait_stopped()

    async def _drain(self) -> None:
        self.log.write(logging.INFO, "draining", unanswered=self._clients.unanswered)
        self._listener.close()
        self._clients.release()
        self._clients.is_closing = True
        others = tuple(broker.peer.address for broker in self._queries.brokers()[1:])
        for session in list(self._clients.sessions):
            session.send_go_away("this broker stops", others)
        until = self._loop.time() + self.config.limits.drain_s
        while self._loop.time() < until and not self.failure:
            if not (self._clients.unanswered or self._driver.unsynced or self._clients.queued_bytes):
                break
            await asyncio.sleep(DRAIN_CHECK_S)
        else:
            self.log.write(
                logging.WARNING, "not_drained", unanswered=self._clients.unanswered, unsynced=self._driver.unsynced
            )

    async def leave(self) -> None:
        """Hand everything over to other brokers, and stop; raise BrokerError where nobody could take it."""
        if not self._is_built or self.exit_code is not None:
            raise BrokerError("the broker does not run; there is nothing to leave")
        outcome = await self._clients.ask_self(Leave())
        if isinstance(outcome, Refused):
            raise BrokerError(f"the broker {self.name} cannot leave: {outcome.reason}")
        assert isinstance(outcome, Stored)
        await self.wait_stopped()

    def _on_left(self) -> None:
        """Stop, as the node has handed everything over, or found that it did so long ago."""
        self._is_left = True
        self.log.write(logging.INFO, "left", name=self.name)
        self._spawn(self.stop())

    def _fail(self, problem: str) -> None:
        """End at once: nothing is certain any more but what is on disk."""
        if self.exit_code is None and not self.failure:
            self.failure = problem
            self._driver.close()
            self._spawn(self._close(FAILED))

    async def _close(self, code: int) -> None:
        if self.exit_code is not None:
            return
        self.exit_code = FAILED if self.failure else code
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._listener.close()
        self._driver.close()
        for session in list(self._clients.sessions):
            if self.failure:
                session.connection.abort(self.failure)
            else:
                session.connection.close("this broker stops")
        await self._links.close()
        if self._admin is not None:
            await self._admin.close()
        current = asyncio.current_task()
        others = [task for task in self._tasks if task is not current]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        await self._queries.close()
        if self._archiver is not None and self._archive_queries is not None:
            await self._archive_queries.close()
            await self._archiver.close()
        await asyncio.to_thread(self._store.close)
        self._resolve_ready_waiters()
        self.log.write(logging.INFO, "stopped", code=self.exit_code)
        if not self._stopped.done():
            self._stopped.set_result(self.exit_code)

    async def wait_stopped(self) -> int:
        """Wait until the broker has ended, and return the exit code of a process that ran it."""
        return await asyncio.shield(self._stopped)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
