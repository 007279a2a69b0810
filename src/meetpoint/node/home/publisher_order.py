"""The order of a publisher's events at a subscriber: watermarks, and the reorder buffer of a home.

A home may get the events of a stream in any order, and most of them never: they match nobody there. It notifies of one
only when it knows that none before it can still come. It knows of those that it has taken, of those that were told to
be fully acknowledged, and of what the publishing home answers (`Watermark`): which events below a number some home
still lacks that may want them. Of these the publishing home may know that they are for others; then they need not be
waited for.

A publishing home that is gone has nothing on its way. One that cannot be asked is asked again after a pause, never at
once; the asker gives up after a while (`NodeSettings.hold_us`).

Of the events of one stream the lowest number goes first, once it is safe and nothing that may come before it need be
waited for. Of a publisher that has moved to another broker two streams may be held here: its last event there was fully
acknowledged before it went on here (`Publish.after`), so if that is for this home it has come; it goes first.

A publisher that got no answer sends its events again, and they get later numbers, maybe of the same stream. Of the two
that are one event the first to come is taken, and it may be the later: it goes where the earlier one would have gone.

Every event that matches passes the buffer: it goes on by callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Final, Protocol

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.cluster.directory import Directory
from meetpoint.node.home.outbox import Outbox
from meetpoint.node.home.sequence_set import SequenceSet
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.records import LOCAL
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["ReorderBuffer", "Source", "Watermark", "Watermarked", "Watermarks"]


TOLD_MAX: Final = 256
"""How many numbers are told in one answer."""


class Watermark(Query, frozen=True, array_like=True, gc=False, tag="watermark"):
    """Asks which events of a home's stream, below a number, may still come to the asker.

    It is answered when none may, or after a while.
    """

    home: HomeId
    stream: int
    number: int
    asker: HomeId
    """The home to which they may come; `LOCAL`: any."""
    above: int = 0
    """Numbers up to this one are not asked for. The asker knows that they are for others, which may not have them for
    hours: a broker is down, or its disk is full. Without this they would hide all that was published since."""


class Watermarked(Reply, frozen=True, array_like=True, gc=False, tag="watermarked"):
    """Says that all events below a number, and above another one, are fully acknowledged, but for these.

    `elsewhere` are those of them that are certainly for others.

    `here` is false where the home is not at the node that was asked, or not yet.
    """

    here: bool
    below: int = 0
    pending: tuple[int, ...] = ()
    elsewhere: tuple[int, ...] = ()
    above: int = 0


class Publisher(Protocol):
    """A home that publishes."""

    @property
    def outbox(self) -> Outbox:
        """Its events that are on their way."""


class EventReach(Protocol):
    """Knows how far events have come."""

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Return whether an event that is on its way may still come to a home."""


class Watermarks:
    """Asks and answers for the homes of one node."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        directory: Directory,
        homes: Mapping[HomeId, Publisher],
        reach: EventReach,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._directory = directory
        self._homes = homes
        self._reach = reach

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handler of questions."""
        return {Watermark: self._watermark}  # type: ignore[dict-item]

    def _watermark(self, source: Peer, question: Watermark) -> None:
        self._answer(question).then(lambda told: self._runtime.send(source, told))

    def _answer(self, question: Watermark) -> Signal[Watermarked]:
        """Return the answer: at once where nothing is pending, else when nothing is, or after a while."""
        answered: Signal[Watermarked] = Signal()
        told = self.tell(question)
        home = self._homes.get(question.home)
        awaited = set(told.pending).difference(told.elsewhere)
        if home is None or all(number >= question.number for number in awaited):
            answered.set(told)
            return answered
        outbox = home.outbox
        acknowledged = outbox.acknowledged_below(question.stream, question.number)

        def answer() -> None:
            self._runtime.cancel(timer)
            outbox.stop_waiting(acknowledged)
            answered.set(self.tell(question))

        timer = self._runtime.after(self._settings.watermark_us, answer)
        acknowledged.then(lambda _: answer())
        return answered

    def tell(self, question: Watermark) -> Watermarked:
        """Return what is known here and now."""
        home = self._homes.get(question.home)
        if home is None:
            entry = self._directory.get(question.home)
            is_gone = entry is not None and entry.gone
            return Watermarked(question.request, is_gone, question.number if is_gone else 0)
        above = question.above
        pending, below = home.outbox.pending(question.stream, question.number, TOLD_MAX, above)
        elsewhere = [number for number in pending if self._is_elsewhere(question, number)]
        return Watermarked(question.request, True, below, tuple(pending), tuple(elsewhere), above)

    def _is_elsewhere(self, question: Watermark, number: int) -> bool:
        event = EventKey(question.home, question.stream, number)
        return question.asker != LOCAL and not self._reach.may_reach(event, question.asker)

    def ask(self, question: Watermark) -> Signal[Watermarked | None]:
        """Ask a publishing home, wherever it is; None where there is no answer."""
        asked: Signal[Watermarked | None] = Signal()

        def answered(reply: Reply | None) -> None:
            asked.set(reply if isinstance(reply, Watermarked) and reply.here else None)

        host = self._directory.host(question.home)
        if host is None or host.id == self._runtime.me.id:
            self._answer(question).then(answered)
        else:
            self._runtime.ask(host, question, self._settings.query_timeout_us).then(answered)
        return asked

    def here(self, question: Watermark) -> Watermarked | None:
        """Return the answer of a home that is here, or gone; None of any other."""
        told = self.tell(question)
        return told if told.here else None


class Source:
    """A stream of some home's events, as a home sees it that may want them."""

    __slots__ = ("asking", "clear", "held", "seen")

    def __init__(self, seen: SequenceSet | None = None) -> None:
        self.seen = SequenceSet() if seen is None else seen
        """Numbers that have been taken, or will never come: they are not taken again."""
        self.clear = SequenceSet.of(self.seen.record())
        """Numbers that need not be waited for: those, those on their way to others, and those that took too long."""
        self.held: list[int] = []  # a heap: taken and not notified yet
        self.asking = False

    def take(self, number: int) -> None:
        """Take an event."""
        self.seen.add(number)
        self.clear.add(number)

    def hold(self, number: int) -> None:
        """Hold an event that was taken back until those before it have come."""
        heappush(self.held, number)

    def release(self) -> int:
        """Release the lowest of those that are held."""
        return heappop(self.held)

    def skip_to(self, floor: int) -> None:
        """Expect none up to a number."""
        self.seen.raise_to(floor)
        self.clear.raise_to(floor)

    def learn(self, told: Watermarked) -> None:
        """Add what the publishing home says."""
        self.seen.add_all_but(told.pending, told.below, told.above)
        self.clear.add_all_but(set(told.pending).difference(told.elsewhere), told.below, told.above)

    def give_up(self, number: int) -> None:
        """Wait no longer for events before this one."""
        self.clear.raise_to(number)

    def is_clear(self, number: int) -> bool:
        """Return whether nothing before an event need be waited for."""
        return number <= self.clear.floor


ASK_US: Final = 5_000
"""How long a home waits before it asks what may come before an event: most often the next one brings the answer."""

StreamKey = tuple[HomeId, int]


class _Held:
    """An event that is held back."""

    __slots__ = ("publisher", "safe", "sequence", "since")

    def __init__(self, publisher: str, sequence: int, since: int, safe: bool) -> None:
        self.publisher = publisher
        self.sequence = sequence
        self.since = since
        self.safe = safe


class ReorderBuffer:
    """Holds back the events of all streams that one home has taken; `release` gets each when it may go on."""

    def __init__(
        self,
        home: HomeId,
        runtime: Runtime,
        settings: NodeSettings,
        watermarks: Watermarks,
        release: Callable[[EventKey], None],
    ) -> None:
        self._home = home
        self._runtime = runtime
        self._settings = settings
        self._watermarks = watermarks
        self._release = release
        self._sources: dict[StreamKey, Source] = {}
        self._held: dict[EventKey, _Held] = {}
        self._publishers: dict[str, dict[StreamKey, list[tuple[int, int]]]] = {}
        """The held events of each publisher, by streams: sequence and number, a heap; the first of it is held still."""
        self.serving = False

    def recover(self, home: HomeId, stream: int, seen: SequenceSet) -> None:
        """Take back what was on disk."""
        self._sources[home, stream] = Source(seen)

    def start(self) -> None:
        """Release events from now on."""
        self.serving = True
        for key in list(self._sources):
            self._go_on(key)

    def source(self, event: EventKey) -> Source:
        """Return the stream of an event."""
        source = self._sources.get((event.home, event.stream))
        if source is None:
            source = self._sources[event.home, event.stream] = Source()
        return source

    def has_taken(self, event: EventKey) -> bool:
        """Return whether the event has come here before."""
        source = self._sources.get((event.home, event.stream))
        return source is not None and event.number in source.seen

    def skip_to(self, event: EventKey, floor: int) -> None:
        """Expect no event of the stream up to a number: all are fully acknowledged."""
        source = self.source(event)
        if floor > source.seen.floor:
            source.skip_to(floor)
            if source.held:
                self._go_on((event.home, event.stream))

    # -- coming and going ----------------------------------------------------------------------------------------------

    def pass_by(self, event: EventKey) -> None:
        """Take an event that nobody here wants."""
        source = self.source(event)
        source.take(event.number)
        if source.held:
            self._go_on((event.home, event.stream))

    def hold(self, event: EventKey, publisher: str, sequence: int, *, safe: bool) -> None:
        """Take an event, and hold it back until those before it have come."""
        source = self.source(event)
        source.take(event.number)
        source.hold(event.number)
        self._held[event] = _Held(publisher, sequence, self._runtime.now, safe)
        streams = self._publishers.setdefault(publisher, {})
        heappush(streams.setdefault((event.home, event.stream), []), (sequence, event.number))
        if safe:
            self._go_on((event.home, event.stream))

    def is_safe(self, event: EventKey) -> None:
        """Take note that an event is safe: it may be notified, as far as disks are concerned."""
        held = self._held.get(event)
        if held is not None:
            held.safe = True
        self._go_on((event.home, event.stream))

    def drop(self, event: EventKey) -> None:
        """Forget an event that nobody wants any more, whether it is held or not."""
        if event in self._held:
            self._let_go(event)

    def _let_go(self, event: EventKey) -> list[StreamKey]:
        """Hold an event no longer; return which other streams may have waited for that."""
        publisher = self._held.pop(event).publisher
        key = event.home, event.stream
        streams = self._publishers[publisher]
        held = streams[key]
        while held and EventKey(*key, held[0][1]) not in self._held:
            heappop(held)
        if not held:
            del streams[key]
        if not streams:
            del self._publishers[publisher]
        return [other for other in streams if other != key]

    # -- which event is next -------------------------------------------------------------------------------------------

    def _go_on(self, key: StreamKey) -> None:
        """Release events as far as possible; one that waits for others makes this home ask for them."""
        todo = [key]
        while todo and self.serving:
            key = todo.pop()
            source = self._sources[key]
            while source.held:
                event = EventKey(*key, source.held[0])
                held = self._held.get(event)
                if held is None:
                    source.release()
                    continue
                if not self._may_go(key, event, held, source):
                    break
                first = EventKey(*key, self._publishers[held.publisher][key][0][1])
                if not self._held[first].safe:
                    break
                todo += self._let_go(first)
                self._release(first)

    def _may_go(self, key: StreamKey, event: EventKey, held: _Held, source: Source) -> bool:
        if not held.safe:
            return False
        wait = ASK_US
        if not source.is_clear(event.number):
            told = self._watermarks.here(self._question(key, source))
            if told is not None:
                source.learn(told)
                wait = 0
        is_clear = source.is_clear(event.number)
        if is_clear and not self._is_behind(key, held):
            return True
        if self._runtime.now - held.since >= self._settings.hold_us:
            self._runtime.observe("order_given_up")
            source.give_up(event.number)
            return True
        self._ask_soon(key, source, self._settings.query_timeout_us // 4 if is_clear else wait)
        return False

    def _is_behind(self, key: StreamKey, mine: _Held) -> bool:
        """Return whether an earlier event of the same publisher is held that came by another broker."""
        streams = self._publishers[mine.publisher]
        return len(streams) > 1 and any(
            other != key and held[0][0] < mine.sequence for other, held in streams.items()
        )  # fmt: skip

    def _ask_soon(self, key: StreamKey, source: Source, delay_us: int) -> None:
        if not source.asking:
            source.asking = True
            self._runtime.after(delay_us, lambda: self._ask(key, source))

    def _ask(self, key: StreamKey, source: Source) -> None:
        if not self.serving or not source.held or source.is_clear(source.held[0]):
            source.asking = False
            self._go_on(key)
            return

        def answered(told: Watermarked | None) -> None:
            source.asking = False
            if told is not None:
                source.learn(told)
            else:  # never at once: a home that does not answer now would not in the next moment
                self._ask_soon(key, source, self._settings.query_timeout_us // 4)
            self._go_on(key)

        self._runtime.observe("order_asked")
        self._watermarks.ask(self._question(key, source)).then(answered)

    def _question(self, key: StreamKey, source: Source) -> Watermark:
        """Return the question what may still come before the lowest that is held."""
        return Watermark(0, *key, source.held[0], self._home, source.clear.floor)

    def holds(self, event: EventKey) -> bool:
        """Return whether an event is held back."""
        return event in self._held

    def check(self) -> None:
        """Assert what must hold at all times."""
        waiting = {EventKey(*key, number) for key, source in self._sources.items() for number in source.held}
        assert self._held.keys() <= waiting
        held = {EventKey(*key, number) for streams in self._publishers.values() for key, each in streams.items()
                for _, number in each}  # fmt: skip
        assert self._held.keys() <= held
