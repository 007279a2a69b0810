"""Summaries that a home here has granted to publishers, and what must wait for them.

A publisher that has a home's summary skips the home for events that have none of its keys. So whoever places an entry
under a new key is answered only when every publisher with a summary knows the key, or its time is over. A publisher
counts the time from when it asked, the home from when it answered: the home's ends later.

After a restart, or when arcs have come from another home, there may be summaries that nobody here knows of: nothing is
answered until the longest of them is over. A home that gives arcs says how long that may be (`owed_us`), so that who
joins a network in which nobody publishes yet need not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meetpoint.api.ids import HomeId, NodeId, Peer
from meetpoint.api.messages import Reply
from meetpoint.matching.keys.meet_keys import MeetKey
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.schemes.meet.messages import KeySummary, SummaryUpdate, SummaryUpdateAck, group_keys

__all__ = ["KeyLeases"]

CHANGES_MAX = 4_096
"""How many changes of a home's keys are remembered, to tell only what is new."""
TIMEOUT_US = 1_000_000
AGAIN_US = TIMEOUT_US // 4
"""How long to wait before a publisher that was not reached is told again."""


class _Holder:
    __slots__ = ("asking", "known", "listed", "peer", "until")

    def __init__(self, peer: Peer, known: int, until: int) -> None:
        self.peer = peer
        self.known = known  # the serial it is certain to know
        self.until = until
        self.asking = False
        self.listed = False  # whether the directory has listed it since


class KeyLeases:
    """The summary of one home here."""

    def __init__(
        self,
        home: HomeId,
        services: Runtime,
        hosting: HomeManager,
        lease_us: int,
        keys: Callable[[], Iterable[MeetKey]],
        version: Callable[[], int],
        *,
        unknown_us: int,
    ) -> None:
        self._home = home
        self._services = services
        self._hosting = hosting
        self._lease_us = lease_us
        self._keys = keys
        self._version = version
        self._base = 1 + services.random.getrandbits(48)
        self._serial = 0
        self._changes: list[tuple[bool, MeetKey]] = []  # the last ones, up to `_serial`
        self._holders: dict[NodeId, _Holder] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._ready_at = services.now + unknown_us + unknown_us // 8
        self._timer: int | None = None
        self.closed = False

    def close(self) -> None:
        """The home is not here any more: whoever waits asks again where it is."""
        self.closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._services.cancel(self._timer)

    @property
    def owed_us(self) -> int:
        """How long publishers may still have a summary of this home, granted here or before."""
        until = max((holder.until for holder in self._holders.values()), default=0)
        return max(0, self._ready_at - self._services.now, until - self._services.now)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def changed(self, key: MeetKey, *, added: bool) -> None:
        """A key is in use that was not, or no longer."""
        self._serial += 1
        self._changes.append((added, key))
        if len(self._changes) > 2 * CHANGES_MAX:
            del self._changes[:CHANGES_MAX]

    def when_known(self, then: Callable[[], None]) -> None:
        """Call back when every publisher with a summary knows the keys of now."""
        self._waiting.append((self._serial, then))
        self._go_on()

    def summary(self, base: int, serial: int) -> KeySummary:
        """All keys, or what has changed since a serial."""
        missed = self._serial - serial
        if base != self._base or not 0 <= missed <= len(self._changes):
            return KeySummary(self._base, self._serial, 0, True, group_keys(self._keys()), ())
        latest = {key: added for added, key in self._changes[len(self._changes) - missed :]}
        added = group_keys(key for key, is_added in latest.items() if is_added)
        removed = group_keys(key for key, is_added in latest.items() if not is_added)
        return KeySummary(self._base, self._serial, serial, False, added, removed)

    # -- who has it ----------------------------------------------------------------------------------------------------

    def grant(self, peer: Peer, base: int, serial: int) -> KeySummary:
        """The summary for a publisher that knows a serial of some base; it is good for a time."""
        now = self._services.now
        holder = self._holders.get(peer.id)
        if holder is not None and peer.incarnation < holder.peer.incarnation:
            return self.summary(base, serial)  # a late question of a former life: what the present one has still counts
        knows = base == self._base and 0 <= serial <= self._serial
        if holder is None or holder.until <= now or holder.peer.incarnation != peer.incarnation:
            holder = self._holders[peer.id] = _Holder(peer, serial if knows else self._serial, 0)
        elif knows:
            # Only what it says is certain: an answer may be lost, and a question come late.
            holder.known = max(holder.known, serial)
        holder.until = now + self._lease_us
        return self.summary(base, serial)

    def _go_on(self) -> None:
        """Answer whoever need not wait longer, and tell publishers what they must know for the rest."""
        if self.closed or not self._waiting:
            return
        now = self._services.now
        if now < self._ready_at:
            self._look_again(self._ready_at)
            return
        self._forget_the_lost(now)
        last = self._waiting[-1][0]
        behind = [holder for holder in self._holders.values() if holder.known < last]
        reached = min((holder.known for holder in behind), default=last)
        due = [then for serial, then in self._waiting if serial <= reached]
        self._waiting = [each for each in self._waiting if each[0] > reached]
        for then in due:
            then()
        if self._waiting and not self.closed:
            for holder in behind:
                self._tell(holder)
            self._look_again(min(holder.until for holder in behind))

    def _forget_the_lost(self, now: int) -> None:
        """Who has left, or is another incarnation now, has no summary any more; who is new may not be listed yet."""
        there = {peer.id: peer.incarnation for peer in self._hosting.directory.others()}
        for node, holder in list(self._holders.items()):
            incarnation = there.get(node)
            if incarnation is None:
                is_lost = holder.listed
            else:
                holder.listed = True
                is_lost = incarnation > holder.peer.incarnation
            if is_lost or holder.until <= now:
                del self._holders[node]

    def _tell(self, holder: _Holder) -> None:
        if holder.asking:
            return
        holder.asking = True
        summary, version = self.summary(self._base, holder.known), self._version()

        def answered(reply: Reply | None) -> None:
            if isinstance(reply, SummaryUpdateAck) and reply.base == self._base:
                holder.known = max(holder.known, min(reply.serial, self._serial))
                go_on()
            else:
                self._services.after(AGAIN_US, go_on)

        def go_on() -> None:
            holder.asking = False
            self._go_on()

        self._services.ask(
            holder.peer, lambda number: SummaryUpdate(number, self._home, version, summary), answered, TIMEOUT_US
        )

    def _look_again(self, at: int) -> None:
        if self._timer is not None:
            self._services.cancel(self._timer)
        self._timer = self._services.after(max(at - self._services.now, 1), self._go_on)
