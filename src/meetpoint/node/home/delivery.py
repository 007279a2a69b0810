"""What a home has for its subscribers: the events that matched, from the moment they come until they are acknowledged.

    taken -> safe on two disks -> its turn in the publisher's order (`ordering`) -> the lines of its names (`lines`)

An event is queued once for all names that it matches, in one record, and leaves the queue when the last of them has
acknowledged it, or is a dead letter. Acknowledgements are written a few at a time: should one be forgotten, the
subscriber gets the event again, marked. Whatever is found in the queue after a restart may have been notified, and goes
out marked, in its turn.

Names that want an event at most once have no part in the record, and no line: they are notified when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from meetpoint.node.home.dedup_window import DedupRecord, DedupWindow
from meetpoint.node.home.publisher_order import Watermarks
from meetpoint.node.home.reorder_buffer import ReorderBuffer
from meetpoint.node.home.sequence_set import SequenceRecord, SequenceSet
from meetpoint.node.home.subscription_table import event_of
from meetpoint.node.runtime.deadlines import Deadlines
from meetpoint.node.runtime.debounce import FLUSH_US, Debouncer
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["Deliveries"]

QUEUE: Final = "queue/"
SEEN: Final = "seen/"
COPY_BYTES: Final = 64
"""What an event takes in a line, beside its content."""
AGAIN_MAX: Final = 4
"""So many of those that bring an event once more are told when it is safe, the latest; others ask again anyway."""


class Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event in the queue, the names it is for, and those that it was for and who have it."""

    names: tuple[str, ...]
    content: bytes
    done: tuple[str, ...] = ()


class _Entry:
    """The same in memory."""

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
        self.again: tuple[Callable[[], None], ...] = ()
        """Whom to tell when it is safe, of those that brought it once more."""


class Deliveries:
    """The queue, the lines and the dead letters of one home."""

    def __init__(self, keeper: Replicator, services: Runtime, settings: NodeSettings, watermarks: Watermarks) -> None:
        self._keeper = keeper
        self._services = services
        self._settings = settings
        self._limits = settings.line
        self._queue: dict[EventKey, _Entry] = {}
        self._turns = ReorderBuffer(keeper.home, services, settings, watermarks, self._bring)
        self._recent = DedupWindow(settings.recent_us, settings.recent_max)
        self._dead = DeadLetters(settings.dead_letters_max, settings.dead_bytes_max)
        self.lines: dict[str, ConsumerQueue] = {}
        self._serving = False
        # What is to be written: events that left the queue, those that lost some names, dead letters, forgotten ones.
        self._left: dict[EventKey, tuple[str, tuple[str, ...]]] = {}
        self._changed: dict[EventKey, None] = {}
        self._died: dict[EventKey, None] = {}
        self._flushing = Debouncer(services, FLUSH_US, self.flush)
        self._alarms = Deadlines(services, self._tend)
        self._prune_timer: int | None = None

    # -- coming back ---------------------------------------------------------------------------------------------------

    def recover(self, subscriptions: Iterable[tuple[str, SubscriptionOptions]]) -> None:
        """Take back what the records say."""
        now = self._services.now
        dead: list[tuple[EventKey, DeadRecord]] = []
        for name, terms in subscriptions:
            self.open(name, terms)
        for name, record in sorted(self._keeper.records.items()):
            table, slash, rest = name.partition("/")
            value = record.value
            if value is None or not slash:
                continue
            if table == "queue":
                self._recover_one(_event_key(rest), msgspec.msgpack.decode(value, type=Waiting))
            elif table == "seen":
                home, stream = rest.split("/")
                seen = SequenceSet.of(msgspec.msgpack.decode(value, type=SequenceRecord))
                self._turns.recover(HomeId(bytes.fromhex(home)), int(stream), seen)
            elif table == "dead":
                dead.append((_event_key(rest), msgspec.msgpack.decode(value, type=DeadRecord)))
            elif table == "recent":
                self._recent.recover(name, msgspec.msgpack.decode(value, type=DedupRecord), now)
        for event, letter in sorted(dead, key=lambda each: (each[1].at_us, each[0])):
            self._dead.recover(event, letter)
        for event in sorted(self._queue):
            read = _read(self._queue[event].content)
            publisher, sequence = ("", 0) if read is None else (read.publisher, read.sequence)
            self._turns.hold(event, publisher, sequence, safe=True)

    def _recover_one(self, event: EventKey, waiting: Waiting) -> None:
        read = _read(waiting.content)
        entry = _Entry("" if read is None else read.id, waiting.names, waiting.content, is_kept=True)
        entry.safe = entry.notified = True
        entry.done += waiting.done
        self._queue[event] = entry
        if read is not None:
            self._recent.add(read.id, (*waiting.names, *waiting.done), self._services.now)

    def start(self) -> None:
        """The home is hosted here and safe, or stays here after all."""
        self._serving = True
        for event, entry in list(self._queue.items()):
            # A copy may be older than the end of a subscription, and bring back what waited for it.
            ended = [name for name in entry.names if name not in self.lines]
            if ended:
                self._lose(event, ended)
        for name, line in self.lines.items():
            line.recall()
            self._pump(name, line)
        self._turns.start()
        self._flush_soon()
        self._prune_later()

    def pause(self) -> None:
        """Write nothing and notify nobody, for now: the home is about to move. `start` goes on."""
        self._serving = False
        self._turns.serving = False
        self._flushing.stop()
        if self._prune_timer is not None:
            self._services.cancel(self._prune_timer)
            self._prune_timer = None
        self._alarms.clear()

    # -- lines ---------------------------------------------------------------------------------------------------------

    def open(self, name: str, terms: SubscriptionOptions) -> None:
        """There is a subscription of a name, or it is another way."""
        if not terms.durable:
            return
        line = self.lines.get(name)
        if line is None:
            line = self.lines[name] = ConsumerQueue(self._limits, self._settings.window)
        if line.paused is not terms.paused:
            line.paused = terms.paused
            self._pump(name, line)

    def close(self, name: str) -> None:
        """A subscription has ended, and nothing waits for it any more."""
        self.lines.pop(name, None)
        for event in [event for event, entry in self._queue.items() if name in entry.names]:
            self._lose(event, (name,))
        self._flush_soon()

    def attend(self, name: str, window: int) -> None:
        """Someone takes notifications of a name."""
        line = self.lines.get(name)
        if line is not None:
            line.attend(min(max(1, window), WINDOW_MAX))
            self._pump(name, line)

    def leave(self, name: str) -> None:
        """Nobody does any more."""
        line = self.lines.get(name)
        if line is not None:
            line.leave()

    def _pump(self, name: str, line: ConsumerQueue) -> None:
        """Notify of what has its turn in one line, and see that it is looked at in time."""
        if not self._serving:
            return
        for event, redelivered in line.take(self._services.now):
            self._notify(event, (name,), self._queue[event], redelivered)
        self._arrange(name, line)

    def _notify(self, event: EventKey, names: tuple[str, ...], entry: _Entry, redelivered: bool) -> None:
        self._services.notify(event, names, entry.content, redelivered)
        if self._services.tracing:
            self._services.trace(event, "notified", self._keeper.home, names, "again" if redelivered else "")

    def _arrange(self, name: str, line: ConsumerQueue) -> None:
        at = line.due()
        if at is not None:
            self._alarms.set(name, at)

    def _tend(self, name: str) -> None:
        line = self.lines.get(name)
        if line is not None and self._serving:
            self._bury(name, line.tend(self._services.now))
            self._pump(name, line)

    # -- events that come ----------------------------------------------------------------------------------------------

    def has_taken(self, event: EventKey) -> bool:
        """Whether the event has come here before."""
        return self._turns.has_taken(event)

    def take_again(self, event: EventKey, then: Callable[[], None]) -> None:
        """An event has come once more: `then` when it need not come again, unless others ask for that meanwhile.

        A disk may be full for hours, and all that is not safe is brought again and again: what is remembered of it must
        not grow.
        """
        entry = self._queue.get(event)
        if entry is None or entry.safe:
            then()
        else:
            entry.again = (*entry.again, then)[-AGAIN_MAX:]

    def skip_to(self, event: EventKey, floor: int) -> None:
        """All events of the stream up to a number are settled: none of them will come."""
        self._turns.skip_to(event, floor)

    def take(
        self,
        event: EventKey,
        content: bytes,
        matched: dict[str, SubscriptionOptions],
        read: Event | None,
        then: Callable[[], None],
    ) -> None:
        """An event has come that matches some names; `then` when it need not come again."""
        names = [name for name, terms in matched.items() if terms.durable or not terms.paused]
        if names and read is not None:
            names = self._not_repeated(event, read.id, names)
        if self._services.tracing:
            self._services.trace(event, "taken", self._keeper.home, names)
        if not names or read is None:
            self._turns.pass_by(event)
            then()
            return
        kept = tuple(name for name in names if matched[name].durable)
        entry = self._queue[event] = _Entry(read.id, names, content, is_kept=bool(kept))
        self._turns.hold(event, read.publisher, read.sequence, safe=not kept)
        if not kept:
            then()
            return

        def safe() -> None:
            entry.safe = True
            self._turns.is_safe(event)
            again, entry.again = entry.again, ()
            for each in (then, *again):
                each()

        waiting = msgspec.msgpack.encode(Waiting(kept, content))
        self._keeper.write([(QUEUE + _path(event), waiting)], (), safe)

    def _not_repeated(self, event: EventKey, id_: str, names: list[str]) -> list[str]:
        """The names for which the same event was not queued a short while ago, maybe under another key."""
        now = self._services.now
        known = self._recent.names(id_, now)
        if known:
            repeated = [name for name in names if name in known]
            names = [name for name in names if name not in known]
            if repeated:
                self._services.observe("event_repeated", len(repeated))
                self._services.trace(event, "repeated", self._keeper.home, repeated)
        if names:
            self._recent.add(id_, names, now)
        return names

    def _bring(self, event: EventKey) -> None:
        """The turn of an event has come: it joins the lines of its names."""
        entry = self._queue[event]
        now, size = self._services.now, len(entry.content) + COPY_BYTES
        due: dict[tuple[EventKey, bool], list[str]] = {}
        once: list[str] = []
        for name in list(entry.names):
            line = self.lines.get(name)
            if line is None:
                due.setdefault((event, False), []).append(name)
                once.append(name)
                continue
            dead = line.put(event, size, now, notified=entry.notified)
            if dead:
                self._bury(name, dead)
            for turn in line.take(now):
                due.setdefault(turn, []).append(name)
            self._arrange(name, line)
        for (each, redelivered), names in due.items():
            self._notify(each, tuple(names), self._queue[each], redelivered)
        if once:
            self._lose(event, once, recorded=False)
            self._flush_soon()

    # -- leaving the queue ---------------------------------------------------------------------------------------------

    def acknowledge(self, event: EventKey, names: Iterable[str]) -> None:
        """The subscribers of these names have an event. Should that be forgotten, they get it again, marked."""
        if event not in self._queue:
            return
        lost = [name for name in names if (line := self.lines.get(name)) is not None and line.remove(event)]
        if not lost:
            return
        if self._services.tracing:
            self._services.trace(event, "acknowledged", self._keeper.home, lost)
        self._lose(event, lost)
        for name in lost:
            self._pump(name, self.lines[name])
        self._flush_soon()

    def reject(self, event: EventKey, names: Iterable[str], reason: str, *, final: bool = False) -> None:
        """The subscribers of these names could not use an event: they get it again, a few times; never, if `final`."""
        now, reason = self._services.now, reason[:REASON_MAX]
        for name in names:
            line = self.lines.get(name)
            if line is not None and event in line:
                self._services.trace(event, "rejected", self._keeper.home, (name,), reason)
                dead = line.reject(event, reason, now, final=final)
                self._bury(name, [] if dead is None else [dead])
                self._pump(name, line)

    def _bury(self, name: str, dead: Iterable[Dead]) -> None:
        """Events leave the line of a name as dead letters."""
        for each in dead:
            entry = self._queue[each.event]
            self._services.observe("dead_letter")
            self._services.trace(each.event, "dead", self._keeper.home, (name,), each.reason)
            forgotten = self._dead.put(each.event, name, entry.content, each.reason, self._services.now)
            if forgotten:
                self._services.observe("dead_letter_forgotten", len(forgotten))
            self._died.update(dict.fromkeys((each.event, *forgotten)))
            self._lose(each.event, (name,))
        self._flush_soon()

    def _lose(self, event: EventKey, names: Iterable[str], *, recorded: bool = True) -> None:
        """An event is no longer for these names, of which the record tells or does not."""
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
        self._turns.drop(event)
        if entry.is_kept:
            self._left[event] = (entry.id, tuple(entry.done))

    def forget(self, event: EventKey, within: str = "") -> bool:
        """A dead letter is not wanted any more by names that begin so; false where there is none."""
        known = self._dead.forget(event, within)
        if known:
            self._died[event] = None
            self._flush_soon()
        return known

    # -- writing -------------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if self._serving and (self._left or self._changed or self._died):
            self._flushing.soon()

    def flush(self) -> None:
        """Write what has changed since the last time, all together."""
        if not (self._left or self._changed or self._died):
            return
        now = self._services.now
        values: list[tuple[str, bytes | None]] = []
        streams = dict.fromkeys((event.home, event.stream) for event in self._left)
        for home, stream in streams:
            seen = self._turns.source(EventKey(home, stream, 0)).seen.record()
            values.append((f"{SEEN}{home.hex()}/{stream}", msgspec.msgpack.encode(seen)))
        ids = [(id_, names) for id_, names in self._left.values() if id_]
        if ids:
            values.append(self._recent.record(ids, now))
        for event in self._changed:
            entry = self._queue[event]
            kept = tuple(name for name in entry.names if name in self.lines)
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
        self._keeper.write(values, erased)
        self._prune_later()

    def _prune_later(self) -> None:
        due = self._recent.due
        if due is None or self._prune_timer is not None or not self._serving:
            return
        self._prune_timer = self._services.after(max(0, due - self._services.now), self._prune)

    def _prune(self) -> None:
        self._prune_timer = None
        if self._serving:
            outdated = self._recent.outdated(self._services.now)
            if outdated:
                self._keeper.write((), outdated)
            self._prune_later()

    # -- seen from outside ---------------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """How many events wait for subscribers."""
        return len(self._queue)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits for anyone, and nobody need be told of anything."""
        return not (self._queue or self._left or self._died or len(self._dead))

    @property
    def dead(self) -> int:
        """How many dead letters there are."""
        return len(self._dead)

    def dead_letters(self, within: str = "") -> list[DeadLetter]:
        """All dead letters, or those of names that begin so."""
        return list(self._dead.letters(within))

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert all(self.has_taken(event) for event in self._queue)
        for name, line in self.lines.items():
            line.check()
            assert all(name in self._queue[event].names for event in line.events), "in a line, and not in the queue"
        self._turns.check()
        for event, entry in self._queue.items():
            in_lines = any(event in self.lines[name] for name in entry.names if name in self.lines)
            assert in_lines is not self._turns.holds(event), "an event of the queue is in lines, or has yet its turn"


def _read(content: bytes) -> Event | None:
    """The event; None where it is none, of a peer that erred."""
    try:
        return event_of(content)
    except EventError:
        return None


def _path(event: EventKey) -> str:
    return f"{event.home.hex()}/{event.stream}/{event.number}"


def _event_key(path: str) -> EventKey:
    home, stream, number = path.split("/")
    return EventKey(HomeId(bytes.fromhex(home)), int(stream), int(number))
