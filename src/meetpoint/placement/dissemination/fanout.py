"""Home fan-out: brings an event to the homes that may want it, until each has it safe; concurrent calls share one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.dissemination import ATTEMPT_US
from meetpoint.placement.entries.entry_table import Matched
from meetpoint.placement.messages import DeliverToHome, DeliverToHomeAck
from meetpoint.placement.ownership.home_rpc import HomeRpc

__all__ = ["AGAIN_US", "Bring", "HomeFanout", "Recipients", "SingleFlight", "event_bytes", "when_all"]


TIMEOUT_US: Final = SECOND_US
AGAIN_US: Final = SECOND_US // 4


class Recipients:
    """The homes that an event is brought to: which have not got it, and signals for when all have, or some are slow.

    Those that are a part of others' recipients tell these of each home that has it, and of all else.
    """

    __slots__ = ("_whole", "ended", "open", "slow", "to")

    def __init__(self, to: Mapping[HomeId, tuple[int, ...]], whole: Recipients | None = None) -> None:
        self.to = to
        self.open = dict.fromkeys(to)
        self.ended: Signal[bool] = Signal()
        """Whether all have it in time."""
        self.slow: Signal[tuple[HomeId, ...]] = Signal()
        """Set where one of them does not answer: those that have not got it by then."""
        self._whole = whole

    def has(self, home: HomeId) -> None:
        """Take note that a home has it."""
        if self._whole is not None:
            self._whole.has(home)
        self.open.pop(home, None)
        if not self.open and not self.ended.is_set:
            self.ended.set(True)

    def give_up(self) -> None:
        """End: it takes too long."""
        if not self.ended.is_set:
            self.ended.set(False)
            if self._whole is not None:
                self._whole.give_up()

    def is_slow(self) -> None:
        """Take note that one of them did not answer."""
        if not self.slow.is_set:
            self.slow.set(tuple(self.open))
            if self._whole is not None:
                self._whole.is_slow()


class _Delivery(NamedTuple):
    """An event on its way to homes, and until when it is brought."""

    event: EventKey
    floor: int
    content: bytes
    recipients: Recipients
    until: int


class HomeFanout:
    """Brings events from one node to homes, wherever they are. Each event comes here: it goes on by callbacks."""

    def __init__(self, runtime: Runtime, home_manager: HomeManager, homes: HomeRpc) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._homes = homes
        homes.answer(DeliverToHome, self._deliver)

    def bring(self, event: EventKey, floor: int, content: bytes, recipients: Recipients, within_us: int) -> None:
        """Bring an event to homes, each with its SubIDs, until all have it or the time is over."""
        until = self._runtime.now + within_us
        if not recipients.open and not recipients.ended.is_set:
            recipients.ended.set(True)
        delivery = _Delivery(event, floor, content, recipients, until)
        for home in recipients.to:
            self._ask(delivery, home)

    def _ask(self, delivery: _Delivery, home: HomeId) -> None:
        if delivery.recipients.ended.is_set:
            return
        entry = self._home_manager.directory.get(home)
        if entry is not None and entry.gone:
            delivery.recipients.has(home)  # with all its subscriptions
            return
        subids = delivery.recipients.to[home]
        self._runtime.observe("subids_sent", len(subids), event_bytes(delivery.event))
        question = DeliverToHome(0, home, delivery.event, delivery.floor, subids, delivery.content)
        self._homes.ask(home, question, TIMEOUT_US).then(partial(self._answered, delivery, home))

    def _answered(self, delivery: _Delivery, home: HomeId, reply: Reply | None) -> None:
        recipients = delivery.recipients
        if isinstance(reply, DeliverToHomeAck) and reply.taken:
            if self._runtime.tracing:
                detail = f"for {len(recipients.to[home])} subscriptions"
                self._runtime.trace(delivery.event, "brought", home, detail=detail)
            recipients.has(home)
        elif self._runtime.now >= delivery.until:
            recipients.give_up()
        else:
            recipients.is_slow()
            self._runtime.after(AGAIN_US, partial(self._ask, delivery, home))  # at once, it would be lost as soon again

    def bring_soon(
        self, event: EventKey, floor: int, content: bytes, to: Mapping[HomeId, tuple[int, ...]], within_us: int
    ) -> Signal[Mapping[HomeId, tuple[int, ...]]]:
        """Bring an event to homes, for so long; set with those that did not say in time that they have it."""
        left: Signal[Mapping[HomeId, tuple[int, ...]]] = Signal()
        recipients = Recipients(to)

        def late() -> None:
            if not left.is_set:
                left.set({home: to[home] for home in recipients.open})

        def ended(well: bool) -> None:
            if well and not left.is_set:
                self._runtime.cancel(timer)
                left.set({})

        timer = self._runtime.after(within_us, late)
        recipients.ended.then(ended)
        self.bring(event, floor, content, recipients, within_us)
        return left

    def _deliver(self, question: DeliverToHome) -> Signal[Reply]:
        home = self._home_manager.homes.get(question.home)
        if home is None:
            return Signal.of(DeliverToHomeAck(question.request, False))
        home.skip_to(question.event, question.floor)
        delivered: Signal[Reply] = Signal()
        taken = home.take(question.event, question.content)
        taken.then(partial(_delivered, delivered, question.request))
        return delivered


def _delivered(delivered: Signal[Reply], request: int, _: object) -> None:
    delivered.set(DeliverToHomeAck(request, True))


def event_bytes(event: EventKey) -> bytes:
    """Return an event as measurements name it."""
    return b"%s/%d/%d" % (event.home, event.stream, event.number)


Bring: TypeAlias = Callable[[EventKey, int, bytes, Recipients, int], None]
"""`HomeFanout.bring`, or `Multicast.bring`."""
Then: TypeAlias = Callable[[bool], None]
Slow: TypeAlias = Callable[[tuple[HomeId, ...]], None]
KeyT = TypeVar("KeyT", bound=Hashable)


class _Flight(NamedTuple):
    """A fan-out under way, and the callbacks of all who wait for it."""

    recipients: Recipients
    waiting: list[Then]


class SingleFlight(Generic[KeyT]):
    """Coalesces concurrent requests to deliver one event: one fan-out runs, all callers wait for it.

    A key says what is the same: an event at one place.
    """

    def __init__(self, bring: Bring) -> None:
        self._bring = bring
        self._flights: dict[KeyT, _Flight] = {}

    def join(self, key: KeyT, then: Then, slow: Slow) -> bool:
        """Wait for the fan-out that is under way, and say at once which homes it waits for; False where none is."""
        flight = self._flights.get(key)
        if flight is None:
            return False
        flight.waiting.append(then)
        slow(tuple(flight.recipients.open))
        return True

    def begin(
        self, key: KeyT, event: EventKey, floor: int, content: bytes, to: Matched, then: Then, slow: Slow
    ) -> None:
        """Bring an event to homes; `then` whether all have it in time, `slow` as `Recipients.slow`."""
        recipients = Recipients(to)
        self._flights[key] = _Flight(recipients, [then])
        recipients.ended.then(partial(self._ended, key))
        recipients.slow.then(slow)
        self._bring(event, floor, content, recipients, ATTEMPT_US)

    def _ended(self, key: KeyT, well: bool) -> None:
        for each in self._flights.pop(key).waiting:
            each(well)


def when_all(count: int, then: Callable[[], None]) -> Callable[[], None]:
    """Return a callback to call when each of so many things is done; the last call calls `then`."""
    left = count

    def one_is_done() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    return one_is_done
