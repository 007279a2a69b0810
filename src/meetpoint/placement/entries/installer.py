"""Planting entries by errands: an entry goes to whoever holds its keys, who keeps it, or names a place less crowded.

The way of schemes that know the keys of an entry beforehand; `EntryInstaller` is what `placing` asks of any way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Message
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.keyed_rpc import KeyedRpc, Reached
from meetpoint.placement.messages import BucketFull, Entry, Put, Removed, Stored, Withdraw
from meetpoint.placement.ownership.ownership import Ownership

__all__ = ["Accept", "EntryInstaller", "KeyedEntryInstaller", "Stop", "entry_name"]

WITHDRAWN_MAX: Final = 4_096
"""How many withdrawn entries a node remembers, so that a late message does not bring them back."""

Stop = Callable[[], None]
Accept = Callable[[Home, str, Entry, Callable[[Message], None]], None]
"""Has an entry kept at a home here, under a name; answers when every event that comes from then on meets it."""


class EntryInstaller(Protocol):
    """How an entry of a home gets to where it belongs, and away from there.

    Both go on until they are done or stopped, and may be done more than once. No number is planted again once it is
    uprooted: a late message brings nothing back for long.
    """

    def plant(
        self, home: HomeId, number: int, entry: Entry, placed: Callable[[], None], crowded: Callable[[Entry], None]
    ) -> Stop:
        """Place an entry; `placed` once, when it is safe and every event that begins its way from then on meets it.

        Or `crowded`, once, with the entry that is to be placed instead. What is returned stops it: what was placed by
        then stays. Either may be called before this returns.
        """

    def uproot(self, home: HomeId, number: int, entry: Entry, done: Callable[[], None]) -> Stop:
        """Take an entry away, wherever it is or may be, also if it was not placed to the end; `done` once."""


class KeyedEntryInstaller:
    """A `EntryInstaller`, and the errands of others that place entries at homes here.

    `straight`: errands go by what was heard of arcs, not by routing. `next_key`: the first key after another that
    matters to an entry; else all do.
    """

    def __init__(
        self,
        services: Runtime,
        custody: Ownership,
        errands: KeyedRpc,
        accept: Accept,
        *,
        straight: bool,
        next_key: Callable[[Entry, bytes], bytes | None] | None = None,
    ) -> None:
        self._services = services
        self._custody = custody
        self._errands = errands
        self._accept = accept
        self._straight = straight
        self._withdrawn: dict[str, None] = {}
        onward = None if next_key is None else lambda message, after: next_key(message.entry, after)
        errands.do(Put, self._put, onward)
        errands.do(Withdraw, self._withdraw, onward)

    # -- at the home of a subscription ---------------------------------------------------------------------------------

    def plant(
        self, home: HomeId, number: int, entry: Entry, placed: Callable[[], None], crowded: Callable[[Entry], None]
    ) -> Stop:
        """Send an entry to its keys."""
        instead: list[Entry] = []

        def answered(answer: Message, from_afar: bool) -> None:
            if isinstance(answer, BucketFull):
                instead.append(answer.at)

        def done() -> None:
            if instead:
                crowded(instead[0])
            else:
                placed()

        put = Put(home, number, entry)
        return self._stop(
            self._errands.run(entry.low, entry.high, put, done, answered=answered, straight=self._straight)
        )

    def uproot(self, home: HomeId, number: int, entry: Entry, done: Callable[[], None]) -> Stop:
        """Have an entry forgotten at its keys."""
        withdraw = Withdraw(home, number, entry)
        return self._stop(self._errands.run(entry.low, entry.high, withdraw, done, straight=self._straight))

    def _stop(self, errand: int) -> Stop:
        return lambda: self._errands.stop(errand)

    # -- at the holder of a key ----------------------------------------------------------------------------------------

    def _put(self, home: Home, reached: Reached, put: Put, answer: Callable[[Message], None]) -> None:
        name = entry_name(put.home, put.number)
        if name in self._withdrawn:
            self._services.observe("entry_late")
            answer(Stored())
            return
        self._accept(home, name, put.entry, answer)

    def _withdraw(self, home: Home, reached: Reached, withdraw: Withdraw, answer: Callable[[Message], None]) -> None:
        name = entry_name(withdraw.home, withdraw.number)
        self._withdrawn[name] = None
        if len(self._withdrawn) > WITHDRAWN_MAX:
            del self._withdrawn[next(iter(self._withdrawn))]
        self._custody.remove(home, name, lambda: answer(Removed()))


def entry_name(home: HomeId, number: int) -> str:
    """The name of an entry wherever it is placed."""
    return f"{home.hex()}/{number}"
