"""A consumer queue: the events that wait for one subscriber, in order, and those that it was notified of.

    waiting -> notified -> acknowledged, and gone
                  |  ^
                  v  | again after 1, 5, 30 and 120 s
               set aside -> after five tries: a dead letter

At most `window` events are notified and not acknowledged. An event that is set aside does not hold up the rest. While
nobody takes from the queue (`leave`) nothing is notified and no try is counted: what was notified waits again, at the
front.

Beyond its limits the oldest event of a queue becomes a dead letter, with the reason. Nothing here reads a clock or
sends anything: times are handed in, and what is to be done is returned.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey
from meetpoint.api.limits import SECOND_US
from meetpoint.node.settings import DAY_US, QueueLimits

__all__ = ["ConsumerQueue", "Dead"]

_WAITING, _NOTIFIED, _ASIDE = range(3)
STALE_MAX: Final = 64
"""How many stale items a queue keeps in its orders of time, beside as many as there are events."""


class Dead(msgspec.Struct, frozen=True, gc=False):
    """An event that leaves its queue unacknowledged, and why."""

    event: EventKey
    reason: str


class _Item:
    """An event in a queue."""

    __slots__ = ("due", "notified", "reason", "since", "size", "state", "tries")

    def __init__(self, size: int, since: int, notified: bool) -> None:
        self.size = size
        self.since = since
        self.notified = notified
        """Whether it may have been notified before, so that it goes out marked."""
        self.state = _WAITING
        self.tries = 0
        self.due = 0
        self.reason = ""


class ConsumerQueue:
    """Orders the events of one subscription, and says which to notify."""

    __slots__ = ("_aside", "_items", "_notified", "_out", "_waiting", "bytes", "limits", "paused", "present", "window")

    def __init__(self, limits: QueueLimits, window: int) -> None:
        self.limits = limits
        self.window = window
        self.present = True
        """Whether somebody takes from it, as far as is known."""
        self.paused = False
        self.bytes = 0
        self._items: OrderedDict[EventKey, _Item] = OrderedDict()  # the oldest first
        self._waiting: deque[EventKey] = deque()
        self._notified: deque[tuple[int, EventKey]] = deque()  # by when to be acknowledged; the earliest first
        self._aside: list[tuple[int, EventKey]] = []  # a heap: when it is notified again
        self._out = 0
        # These three keep stale items until they come to their front: `_Item.state` and `due` say what is.

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, event: EventKey) -> bool:
        return event in self._items

    @property
    def out(self) -> int:
        """The number of events that are notified and not acknowledged."""
        return self._out

    @property
    def events(self) -> list[EventKey]:
        """All events in it, the oldest first."""
        return list(self._items)

    # -- coming and going ----------------------------------------------------------------------------------------------

    def put(self, event: EventKey, size: int, now: int, *, notified: bool = False) -> list[Dead]:
        """Add an event; return those that had to leave for it."""
        self._items[event] = _Item(size, now, notified)
        self._waiting.append(event)
        self.bytes += size
        limits = self.limits
        dead: list[Dead] = []
        while len(self._items) > limits.events_max or (self.bytes > limits.bytes_max and len(self._items) > 1):
            oldest = next(iter(self._items))
            over = (
                f"more than {limits.events_max:,} events"
                if len(self._items) > limits.events_max
                else f"more than {limits.bytes_max >> 20:,} MiB"
            )
            self.remove(oldest)
            dead.append(Dead(oldest, f"its line was full: {over} waited for the subscriber"))
        return dead

    def take(self, now: int) -> list[tuple[EventKey, bool]]:
        """Return the events to notify now, and whether each may have been notified before."""
        taken: list[tuple[EventKey, bool]] = []
        if not self.present or self.paused:
            return taken
        while self._out < self.window:
            if self._aside and self._aside[0][0] <= now:
                due, event = heappop(self._aside)
                item = self._items.get(event)
                if item is None or item.state != _ASIDE or item.due != due:
                    continue
            elif self._waiting:
                event = self._waiting.popleft()
                item = self._items.get(event)
                if item is None or item.state != _WAITING:
                    continue
            else:
                break
            item.state = _NOTIFIED
            item.tries += 1
            item.due = now + self.limits.acknowledge_us
            self._out += 1
            self._notified.append((item.due, event))
            taken.append((event, item.notified))
            item.notified = True
        return taken

    def remove(self, event: EventKey) -> bool:
        """Remove an event that is acknowledged, or not wanted any more; return whether it was in the queue."""
        item = self._items.pop(event, None)
        if item is None:
            return False
        self.bytes -= item.size
        if item.state == _NOTIFIED:
            self._out -= 1
        self._drop_stale()
        return True

    def reject(self, event: EventKey, reason: str, now: int, *, final: bool = False) -> Dead | None:
        """Set an event aside that the subscriber could not use; return it after its last try, or if `final`."""
        item = self._items.get(event)
        if item is None or item.state != _NOTIFIED:
            return None
        if final:
            self.remove(event)
            return Dead(event, reason or "rejected without a reason")
        return self._fail(event, item, reason or "rejected without a reason", now)

    def tend(self, now: int) -> list[Dead]:
        """Set aside what was not acknowledged in time; return what leaves the queue."""
        dead: list[Dead] = []
        while self._notified and self._notified[0][0] <= now:
            due, event = self._notified.popleft()
            item = self._items.get(event)
            if item is not None and item.state == _NOTIFIED and item.due == due:
                seconds = self.limits.acknowledge_us / SECOND_US
                failed = self._fail(event, item, f"not acknowledged within {seconds:g} s", now)
                dead += [] if failed is None else [failed]
        while self._items:
            oldest, item = next(iter(self._items.items()))
            if now - item.since < self.limits.age_us_max:
                break
            self.remove(oldest)
            days = self.limits.age_us_max / DAY_US
            dead.append(Dead(oldest, f"it waited for the subscriber for {days:.3g} days"))
        return dead

    def _fail(self, event: EventKey, item: _Item, reason: str, now: int) -> Dead | None:
        if item.tries >= self.limits.tries_max:
            self.remove(event)
            return Dead(event, f"{reason}, the last of {item.tries} tries")
        self._out -= 1
        item.state = _ASIDE
        item.reason = reason
        item.due = now + self.limits.retries_us[item.tries - 1]
        heappush(self._aside, (item.due, event))
        return None

    # -- the subscriber ------------------------------------------------------------------------------------------------

    def attend(self, window: int) -> None:
        """Let a subscriber take from the queue, so many at a time."""
        self.present = True
        self.window = window

    def leave(self) -> None:
        """Notify nobody: nobody takes from the queue."""
        self.present = False
        self.recall()

    def recall(self) -> None:
        """Let what was notified and not acknowledged wait again, at the front, without a try counted."""
        back = []
        for due, event in self._notified:
            item = self._items.get(event)
            if item is not None and item.state == _NOTIFIED and item.due == due:
                item.state = _WAITING
                item.tries -= 1
                back.append(event)
        self._notified.clear()
        self._out = 0
        self._waiting.extendleft(reversed(back))

    # -- time ----------------------------------------------------------------------------------------------------------

    def due(self) -> int | None:
        """Return when to `tend` and to `take` again, if nothing happens before."""
        if not self._items:
            return None
        oldest = self._items[next(iter(self._items))]
        at = oldest.since + self.limits.age_us_max
        if self._notified:
            at = min(at, self._notified[0][0])
        if self._aside and self.present and not self.paused and self._out < self.window:
            at = min(at, self._aside[0][0])
        return at

    def _drop_stale(self) -> None:
        """Drop stale items: at the front, as most is acknowledged in order; all of them where they are many."""
        items = self._items
        notified = self._notified
        while notified:
            due, event = notified[0]
            item = items.get(event)
            if item is not None and item.state == _NOTIFIED and item.due == due:
                break
            notified.popleft()
        most = 2 * len(items) + STALE_MAX
        if len(notified) > most:
            self._notified = deque(each for each in notified if self._is(each[1], _NOTIFIED, each[0]))
        if len(self._waiting) > most:
            self._waiting = deque(each for each in self._waiting if self._is(each, _WAITING, None))
        if len(self._aside) > most:
            self._aside = [each for each in self._aside if self._is(each[1], _ASIDE, each[0])]
            heapify(self._aside)

    def _is(self, event: EventKey, state: int, due: int | None) -> bool:
        item = self._items.get(event)
        return item is not None and item.state == state and (due is None or item.due == due)

    def check(self) -> None:
        """Assert what must hold at all times."""
        items = self._items.values()
        assert self._out == sum(item.state == _NOTIFIED for item in items)
        assert self.bytes == sum(item.size for item in items)
        assert len(self._items) <= self.limits.events_max
        assert self.present or not self._out, "nobody takes it, and something is out"
