"""Delivery: the events of a home that matched, from the moment they come until its subscribers acknowledge them.

    taken -> safe on two disks -> in the publisher's order (`ReorderBuffer`) -> the consumer queues of its names

An event is queued once for all names that it matches, in one record, and leaves the queue when the last of them has
acknowledged it, or is a dead letter. Acknowledgements are written a few at a time: should one be forgotten, the
subscriber gets the event again, marked. An event found in the queue after a restart may have been notified, and goes
out marked, in its order.

Names that want an event at most once have no part in the record, and no consumer queue: they are notified in its order.

Every event that matches passes here: it goes on by callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import WINDOW_MAX
from meetpoint.api.requests import SubscriptionOptions
from meetpoint.errors import EventError
from meetpoint.language.events.event import Event
from meetpoint.node.cluster.replication import Replicator
from meetpoint.node.home.consumer_queue import ConsumerQueue, Dead
from meetpoint.node.home.dead_letters import DEAD, REASON_MAX, DeadLetter, DeadLetters, DeadRecord
from meetpoint.node.home.dedup import DedupRecord, DedupWindow
from meetpoint.node.home.publisher_order import ReorderBuffer, Watermarks
from meetpoint.node.home.sequence_set import SequenceRecord, SequenceSet
from meetpoint.node.home.subscription_table import event_of
from meetpoint.node.runtime.flow import DONE, Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.runtime.timers import FLUSH_US, Deadlines, Debouncer
from meetpoint.node.settings import NodeSettings

__all__ = ["Deliveries"]

QUEUE: Final = "queue/"
SEEN: Final = "seen/"
COPY_BYTES: Final = 64
"""The bytes that an event takes in a consumer queue, beside its content."""
AGAIN_MAX: Final = 4
"""How many senders of an event that came again are told when it is safe, the latest; others ask again anyway."""


class Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The record of an event in the queue: the names it is for, and those that have it already."""

    names: tuple[str, ...]
    content: bytes
    done: tuple[str, ...] = ()


class _Entry:
    """An event in the queue, in memory."""

    __slots__ = ("again", "content", "done", "id", "is_kept", "names", "notified", "safe")

    def __init__(self, id_: str, names: Iterable[str], content: bytes, *, is_kept: bool) -> None:
        self.id = id_
        self.names = dict.fromkeys(names)
        self.content = content
        self.is_kept = is_kept
        """Whether there is a record of it, or will be."""
        self.safe = not is_kept
        self.notified = False
        """Whether it may have been notified in a former life of the home."""
        self.done: list[str] = []
        self.again: tuple[Signal[None], ...] = ()
        """Set when it is safe: the senders that brought it once more wait for that."""


class Deliveries:
    """The queue, the consumer queues and the dead letters of one home."""

    def __init__(
        self, replicator: Replicator, runtime: Runtime, settings: NodeSettings, watermarks: Watermarks
    ) -> None:
        self._replicator = replicator
        self._runtime = runtime
        self._settings = settings
        self._limits = settings.line
        self._queue: dict[EventKey, _Entry] = {}
        self._reorder = ReorderBuffer(replicator.home, runtime, settings, watermarks, self._enqueue)
        self._recent = DedupWindow(settings.recent_us, settings.recent_max)
        self._dead = DeadLetters(settings.dead_letters_max, settings.dead_bytes_max)
        self.queues: dict[str, ConsumerQueue] = {}
        self._client_requests_ = False
        # What is to be written: events that left the queue, those that lost some names, dead letters, forgotten ones.
        self._left: dict[EventKey, tuple[str, tuple[str, ...]]] = {}
        self._changed: dict[EventKey, None] = {}
        self._died: dict[EventKey, None] = {}
        self._flushing = Debouncer(runtime, FLUSH_US, self.flush)
        self._alarms = Deadlines(runtime, self._tend)
        self._prune_timer: int | None = None

    # -- coming back ---------------------------------------------------------------------------------------------------

    def recover(self, subscriptions: Iterable[tuple[str, SubscriptionOptions]]) -> None:
        """Take back what was on disk."""
        now = self._runtime.now
        dead: list[tuple[EventKey, DeadRecord]] = []
        for name, terms in subscriptions:
            self.open(name, terms)
        for name, record in sorted(self._replicator.records.items()):
            table, slash, rest = name.partition("/")
            value = record.value
            if value is None or not slash:
                continue
            if table == "queue":
                self._recover_one(_event_key(rest), msgspec.msgpack.decode(value, type=Waiting))
            elif table == "seen":
                home, stream = rest.split("/")
                seen = SequenceSet.of(msgspec.msgpack.decode(value, type=SequenceRecord))
                self._reorder.recover(HomeId(bytes.fromhex(home)), int(stream), seen)
            elif table == "dead":
                dead.append((_event_key(rest), msgspec.msgpack.decode(value, type=DeadRecord)))
            elif table == "recent":
                self._recent.recover(name, msgspec.msgpack.decode(value, type=DedupRecord), now)
        for event, letter in sorted(dead, key=lambda each: (each[1].at_us, each[0])):
            self._dead.recover(event, letter)
        for event in sorted(self._queue):
            read = _read(self._queue[event].content)
            publisher, sequence = ("", 0) if read is None else (read.publisher, read.sequence)
            self._reorder.hold(event, publisher, sequence, safe=True)

    def _recover_one(self, event: EventKey, waiting: Waiting) -> None:
        read = _read(waiting.content)
        entry = _Entry("" if read is None else read.id, waiting.names, waiting.content, is_kept=True)
        entry.safe = entry.notified = True
        entry.done += waiting.done
        self._queue[event] = entry
        if read is not None:
            self._recent.add(read.id, (*waiting.names, *waiting.done), self._runtime.now)

    def start(self) -> None:
        """Serve: the home is hosted here and safe, or stays here after all."""
        self._client_requests_ = True
        for event, entry in list(self._queue.items()):
            # A copy may be older than the end of a subscription, and bring back what waited for it.
            ended = [name for name in entry.names if name not in self.queues]
            if ended:
                self._lose(event, ended)
        for name, queue in self.queues.items():
            queue.recall()
            self._pump(name, queue)
        self._reorder.start()
        self._flush_soon()
        self._prune_later()

    def pause(self) -> None:
        """Write nothing and notify nobody: the home is about to move. `start` goes on."""
        self._client_requests_ = False
        self._reorder.serving = False
        self._flushing.stop()
        if self._prune_timer is not None:
            self._runtime.cancel(self._prune_timer)
            self._prune_timer = None
        self._alarms.clear()

    # -- consumer queues -----------------------------------------------------------------------------------------------

    def open(self, name: str, terms: SubscriptionOptions) -> None:
        """Have a consumer queue for a subscription that is new, or changed."""
        if not terms.durable:
            return
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = ConsumerQueue(self._limits, self._settings.window)
        if queue.paused is not terms.paused:
            queue.paused = terms.paused
            self._pump(name, queue)

    def close(self, name: str) -> None:
        """Drop what waits for a subscription that has ended."""
        self.queues.pop(name, None)
        for event in [event for event, entry in self._queue.items() if name in entry.names]:
            self._lose(event, (name,))
        self._flush_soon()

    def attend(self, name: str, window: int) -> None:
        """Notify a subscriber of a name from now on."""
        queue = self.queues.get(name)
        if queue is not None:
            queue.attend(min(max(1, window), WINDOW_MAX))
            self._pump(name, queue)

    def leave(self, name: str) -> None:
        """Notify nobody of a name any more."""
        queue = self.queues.get(name)
        if queue is not None:
            queue.leave()

    def _pump(self, name: str, queue: ConsumerQueue) -> None:
        """Notify of what is next in one consumer queue, and look at it again in time."""
        if not self._client_requests_:
            return
        for event, redelivered in queue.take(self._runtime.now):
            self._notify(event, (name,), self._queue[event], redelivered)
        self._arrange(name, queue)

    def _notify(self, event: EventKey, names: tuple[str, ...], entry: _Entry, redelivered: bool) -> None:
        self._runtime.notify(event, names, entry.content, redelivered)
        if self._runtime.tracing:
            self._runtime.trace(event, "notified", self._replicator.home, names, "again" if redelivered else "")

    def _arrange(self, name: str, queue: ConsumerQueue) -> None:
        at = queue.due()
        if at is not None:
            self._alarms.set(name, at)

    def _tend(self, name: str) -> None:
        queue = self.queues.get(name)
        if queue is not None and self._client_requests_:
            self._bury(name, queue.tend(self._runtime.now))
            self._pump(name, queue)

    # -- events that come ----------------------------------------------------------------------------------------------

    def has_taken(self, event: EventKey) -> bool:
        """Return whether the event has come here before."""
        return self._reorder.has_taken(event)

    def take_again(self, event: EventKey) -> Signal[None]:
        """Take an event that came once more; set when it need not come again, unless others ask for that meanwhile.

        A disk may be full for hours, and all that is not safe is brought again and again: what is remembered of it must
        not grow.
        """
        entry = self._queue.get(event)
        if entry is None or entry.safe:
            return DONE
        safe: Signal[None] = Signal()
        entry.again = (*entry.again, safe)[-AGAIN_MAX:]
        return safe

    def skip_to(self, event: EventKey, floor: int) -> None:
        """Expect no event of the stream up to a number: all are fully acknowledged."""
        self._reorder.skip_to(event, floor)

    def take(
        self,
        event: EventKey,
        content: bytes,
        matched: dict[str, SubscriptionOptions],
        read: Event | None,
    ) -> Signal[None]:
        """Take an event that matches some names; set when it need not come again."""
        names = [name for name, terms in matched.items() if terms.durable or not terms.paused]
        if names and read is not None:
            names = self._not_repeated(event, read.id, names)
        if self._runtime.tracing:
            self._runtime.trace(event, "taken", self._replicator.home, names)
        if not names or read is None:
            self._reorder.pass_by(event)
            return DONE
        kept = tuple(name for name in names if matched[name].durable)
        entry = self._queue[event] = _Entry(read.id, names, content, is_kept=bool(kept))
        self._reorder.hold(event, read.publisher, read.sequence, safe=not kept)
        if not kept:
            return DONE
        taken: Signal[None] = Signal()

        waiting = msgspec.msgpack.encode(Waiting(kept, content))
        self._replicator.commit([(QUEUE + _path(event), waiting)]).then(partial(self._is_safe, event, entry, taken))
        return taken

    def _is_safe(self, event: EventKey, entry: _Entry, taken: Signal[None], _: object) -> None:
        entry.safe = True
        self._reorder.is_safe(event)
        again, entry.again = entry.again, ()
        for each in (taken, *again):
            each.set(None)

    def _not_repeated(self, event: EventKey, id_: str, names: list[str]) -> list[str]:
        """Return the names for which the same event was not queued a short while ago, maybe under another key."""
        now = self._runtime.now
        known = self._recent.names(id_, now)
        if known:
            repeated = [name for name in names if name in known]
            names = [name for name in names if name not in known]
            if repeated:
                self._runtime.observe("event_repeated", len(repeated))
                self._runtime.trace(event, "repeated", self._replicator.home, repeated)
        if names:
            self._recent.add(id_, names, now)
        return names

    def _enqueue(self, event: EventKey) -> None:
        """Put an event that is next in its publisher's order into the consumer queues of its names."""
        entry = self._queue[event]
        now, size = self._runtime.now, len(entry.content) + COPY_BYTES
        due: dict[tuple[EventKey, bool], list[str]] = {}
        once: list[str] = []
        for name in list(entry.names):
            queue = self.queues.get(name)
            if queue is None:
                due.setdefault((event, False), []).append(name)
                once.append(name)
                continue
            dead = queue.put(event, size, now, notified=entry.notified)
            if dead:
                self._bury(name, dead)
            for notice in queue.take(now):
                due.setdefault(notice, []).append(name)
            self._arrange(name, queue)
        for (each, redelivered), names in due.items():
            self._notify(each, tuple(names), self._queue[each], redelivered)
        if once:
            self._lose(event, once, recorded=False)
            self._flush_soon()

    # -- leaving the queue ---------------------------------------------------------------------------------------------

    def acknowledge(self, event: EventKey, names: Iterable[str]) -> None:
        """Take note that subscribers have an event. Should that be lost, they get it again, marked."""
        if event not in self._queue:
            return
        lost = [name for name in names if (queue := self.queues.get(name)) is not None and queue.remove(event)]
        if not lost:
            return
        if self._runtime.tracing:
            self._runtime.trace(event, "acknowledged", self._replicator.home, lost)
        self._lose(event, lost)
        for name in lost:
            self._pump(name, self.queues[name])
        self._flush_soon()

    def reject(self, event: EventKey, names: Iterable[str], reason: str, *, final: bool = False) -> None:
        """Take note that subscribers could not use an event: they get it again, a few times; never, if `final`."""
        now, reason = self._runtime.now, reason[:REASON_MAX]
        for name in names:
            queue = self.queues.get(name)
            if queue is not None and event in queue:
                self._runtime.trace(event, "rejected", self._replicator.home, (name,), reason)
                dead = queue.reject(event, reason, now, final=final)
                self._bury(name, [] if dead is None else [dead])
                self._pump(name, queue)

    def _bury(self, name: str, dead: Iterable[Dead]) -> None:
        """Have events leave the consumer queue of a name as dead letters."""
        for each in dead:
            entry = self._queue[each.event]
            self._runtime.observe("dead_letter")
            self._runtime.trace(each.event, "dead", self._replicator.home, (name,), each.reason)
            forgotten = self._dead.put(each.event, name, entry.content, each.reason, self._runtime.now)
            if forgotten:
                self._runtime.observe("dead_letter_forgotten", len(forgotten))
            self._died.update(dict.fromkeys((each.event, *forgotten)))
            self._lose(each.event, (name,))
        self._flush_soon()

    def _lose(self, event: EventKey, names: Iterable[str], *, recorded: bool = True) -> None:
        """Drop these names from an event, of which the record tells or does not."""
        entry = self._queue[event]
        recorded = recorded and entry.is_kept
        for name in names:
            if name in entry.names:
                del entry.names[name]
                if recorded:
                    entry.done.append(name)
        if entry.names:
            if recorded:
                self._changed[event] = None
            return
        del self._queue[event]
        self._changed.pop(event, None)
        self._reorder.drop(event)
        if entry.is_kept:
            self._left[event] = (entry.id, tuple(entry.done))

    def forget(self, event: EventKey, within: str = "") -> bool:
        """Forget a dead letter for names that begin so; return whether there was one."""
        known = self._dead.forget(event, within)
        if known:
            self._died[event] = None
            self._flush_soon()
        return known

    # -- writing -------------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if self._client_requests_ and (self._left or self._changed or self._died):
            self._flushing.soon()

    def flush(self) -> None:
        """Write what has changed since the last time, all together."""
        if not (self._left or self._changed or self._died):
            return
        now = self._runtime.now
        values: list[tuple[str, bytes | None]] = []
        streams = dict.fromkeys((event.home, event.stream) for event in self._left)
        for home, stream in streams:
            seen = self._reorder.source(EventKey(home, stream, 0)).seen.record()
            values.append((f"{SEEN}{home.hex()}/{stream}", msgspec.msgpack.encode(seen)))
        ids = [(id_, names) for id_, names in self._left.values() if id_]
        if ids:
            values.append(self._recent.record(ids, now))
        for event in self._changed:
            entry = self._queue[event]
            kept = tuple(name for name in entry.names if name in self.queues)
            waiting = Waiting(kept, entry.content, tuple(entry.done))
            values.append((QUEUE + _path(event), msgspec.msgpack.encode(waiting)))
        erased = [QUEUE + _path(event) for event in self._left]
        for event in self._died:
            letter = self._dead.record(event)
            if letter is None:
                erased.append(DEAD + _path(event))
            else:
                values.append((DEAD + _path(event), letter))
        erased += self._recent.outdated(now)
        self._left.clear()
        self._changed.clear()
        self._died.clear()
        self._replicator.write(values, erased)
        self._prune_later()

    def _prune_later(self) -> None:
        due = self._recent.due
        if due is None or self._prune_timer is not None or not self._client_requests_:
            return
        self._prune_timer = self._runtime.after(max(0, due - self._runtime.now), self._prune)

    def _prune(self) -> None:
        self._prune_timer = None
        if self._client_requests_:
            outdated = self._recent.outdated(self._runtime.now)
            if outdated:
                self._replicator.write((), outdated)
            self._prune_later()

    # -- seen from outside ---------------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """The number of events that wait for subscribers."""
        return len(self._queue)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits for any subscriber, and nothing is to be written."""
        return not (self._queue or self._left or self._died or len(self._dead))

    @property
    def dead(self) -> int:
        """The number of dead letters."""
        return len(self._dead)

    def dead_letters(self, within: str = "") -> list[DeadLetter]:
        """Return all dead letters, or those of names that begin so."""
        return list(self._dead.letters(within))

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert all(self.has_taken(event) for event in self._queue)
        for name, queue in self.queues.items():
            queue.check()
            assert all(name in self._queue[event].names for event in queue.events), (
                "in a consumer queue, and not in the queue"
            )
        self._reorder.check()
        for event, entry in self._queue.items():
            in_lines = any(event in self.queues[name] for name in entry.names if name in self.queues)
            assert in_lines is not self._reorder.holds(event), (
                "an event of the queue is in consumer queues, or held back"
            )


def _read(content: bytes) -> Event | None:
    """Return the event; None where it is malformed, of a peer that erred."""
    try:
        return event_of(content)
    except EventError:
        return None


def _path(event: EventKey) -> str:
    return f"{event.home.hex()}/{event.stream}/{event.number}"


def _event_key(path: str) -> EventKey:
    home, stream, number = path.split("/")
    return EventKey(HomeId(bytes.fromhex(home)), int(stream), int(number))
