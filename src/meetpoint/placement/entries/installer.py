"""Entry installers: bring entries to the owners of their keys, and take them away.

`KeyedEntryInstaller` does so by keyed requests: an owner keeps the entry, or names a place less crowded. It is for
schemes that know the keys of an entry beforehand; `EntryInstaller` is what `Placement` asks of any way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Message
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.messages import BucketFull, Entry, Put, Removed, Stored, Withdraw
from meetpoint.placement.ownership.keyed_rpc import KeyedRpc, Reached
from meetpoint.placement.ownership.ownership import Ownership

__all__ = ["Accept", "EntryInstaller", "Installation", "KeyedEntryInstaller", "Stop", "entry_name"]

WITHDRAWN_MAX: Final = 4_096
"""How many withdrawn entries a node remembers, so that a late message does not bring them back."""

Stop = Callable[[], None]
Accept = Callable[[Home, str, Entry, Callable[[Message], None]], None]
"""Has an entry kept at a home here, under a name; answers when every event that comes from then on meets it."""


class Installation(NamedTuple):
    """An entry on its way to where it belongs."""

    ended: Signal[Entry | None]
    """Set when it is safe and every event that begins its way from then on meets it; or with the entry to install
    instead, where its key is crowded."""
    stop: Stop
    """Stops it; what was installed by then stays."""


class EntryInstaller(Protocol):
    """Brings an entry of a home to where it belongs, and away from there.

    Both go on until they are done or stopped, and may be done more than once. No number is installed again once it is
    uninstalled: a late message brings nothing back for long.
    """

    def install(self, home: HomeId, number: int, entry: Entry) -> Installation:
        """Bring an entry to where it belongs."""

    def uninstall(self, home: HomeId, number: int, entry: Entry) -> Signal[None]:
        """Take an entry away, wherever it is or may be, installed to the end or not; set when it is gone."""


class KeyOrder(Protocol):
    """Knows which keys of an entry matter."""

    def next_key(self, entry: Entry, after: bytes) -> bytes | None:
        """Return the first key after another that matters to an entry; None where there is none."""


class KeyedEntryInstaller:
    """An `EntryInstaller` by keyed requests, which also serves those of others at homes here.

    `straight`: requests go by the owner cache, not by routing. `keys`: which keys of an entry matter.
    """

    def __init__(
        self,
        runtime: Runtime,
        ownership: Ownership,
        rpc: KeyedRpc,
        accept: Accept,
        *,
        straight: bool,
        keys: KeyOrder,
    ) -> None:
        self._runtime = runtime
        self._ownership = ownership
        self._rpc = rpc
        self._accept = accept
        self._straight = straight
        self._withdrawn: dict[str, None] = {}
        self._keys = keys
        rpc.do(Put, self._put, self._next_key)
        rpc.do(Withdraw, self._withdraw, self._next_key)

    # -- at the home of a subscription ---------------------------------------------------------------------------------

    def install(self, home: HomeId, number: int, entry: Entry) -> Installation:
        """Send an entry to its keys."""
        instead: list[Entry] = []
        ended: Signal[Entry | None] = Signal()

        def answered(answer: Message, from_afar: bool) -> None:
            if isinstance(answer, BucketFull):
                instead.append(answer.at)

        request = self._rpc.run(
            entry.low,
            entry.high,
            Put(home, number, entry),
            lambda: ended.set(instead[0] if instead else None),
            answered=answered,
            straight=self._straight,
        )
        return Installation(ended, lambda: self._rpc.stop(request))

    def uninstall(self, home: HomeId, number: int, entry: Entry) -> Signal[None]:
        """Have an entry forgotten at its keys."""
        gone: Signal[None] = Signal()
        withdraw = Withdraw(home, number, entry)
        self._rpc.run(entry.low, entry.high, withdraw, lambda: gone.set(None), straight=self._straight)
        return gone

    def _next_key(self, message: Put | Withdraw, after: bytes) -> bytes | None:
        return self._keys.next_key(message.entry, after)

    # -- at the owner of a key -----------------------------------------------------------------------------------------

    def _put(self, home: Home, reached: Reached, put: Put, answer: Callable[[Message], None]) -> None:
        name = entry_name(put.home, put.number)
        if name in self._withdrawn:
            self._runtime.observe("entry_late")
            answer(Stored())
            return
        self._accept(home, name, put.entry, answer)

    def _withdraw(self, home: Home, reached: Reached, withdraw: Withdraw, answer: Callable[[Message], None]) -> None:
        name = entry_name(withdraw.home, withdraw.number)
        self._withdrawn[name] = None
        if len(self._withdrawn) > WITHDRAWN_MAX:
            del self._withdrawn[next(iter(self._withdrawn))]
        self._ownership.remove(home, name).then(lambda _: answer(Removed()))


def entry_name(home: HomeId, number: int) -> str:
    """Return the name of an entry wherever it is stored."""
    return f"{home.hex()}/{number}"
