"""Quenching: an event does not go where nothing is wanted (paper C, section 4.5).

A region is *idle* if nothing lies there and nothing lies *below* it: at a subset of any of its ids. All that an event's
duty could meet lies at or below the region around the duty's head, so that a duty whose head lies in an idle region
need not be handed on. A node that hands duties to a region asks all owners of its ids, and each of them answers for its
part: idle for so long, if nothing lies there, and if it knows the same of every region with one set bit less.

It never costs a match:

- A region of which nothing is known counts as wanted, and an answer counts for a time (`leases`): never longer than
  those know it by whom it is known.
- A node that has told others that a region is idle, and then gets an entry at or below it, tells them so. They tell
  those who know by them, and only then answer. The entry is acknowledged when all have answered, or their leases are
  over. So a node that meets an event that is published later hands it on.
- A node that began anew does not know whom it told. It waits for the time of a lease.

Deviation: the paper's bits of interest are set once and never taken back, and race with publishing. Here they come back
by themselves: an idle region is asked for again when events come by, some time after entries are gone.

Nodes tell each other upwards only: every lease rests on leases for regions of lower `rank`. So nobody waits for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Reply
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.placement.dissemination.fanout import when_all
from meetpoint.placement.entries.entry_table import EntryListener
from meetpoint.placement.entries.leases import holder_us
from meetpoint.placement.ownership.keyed_rpc import KeyedRpc, Reached
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.schemes.reach.entries import IdTables
from meetpoint.schemes.reach.ids import Cube, below, is_below, meets_below, pieces, rank
from meetpoint.schemes.reach.leases import RegionLease, RegionLeases
from meetpoint.schemes.reach.messages import IdleQuery, IdleReply, PackedRegion, RevokeIdle, RevokeIdleAck

__all__ = ["Quench"]

ASK_US: Final = 3 * SECOND_US
"""How long a question may take, with those that it leads to; each of those has a little less."""
ASK_US_MIN: Final = SECOND_US // 10
PAUSE_US: Final = 2 * SECOND_US
"""How long a region that is not idle is not asked again; doubled each time, up to `PAUSE_US_MAX`."""
PAUSE_US_MAX: Final = 32 * SECOND_US
WISHES: Final = 3
"""Events that have to come by in the time that an answer is good for, before a region is asked: it has to pay for the
question. Each time that it was asked in vain it takes twice as many, in twice the time, up to `WISHES_MAX`."""
WISHES_MAX: Final = 96
USES: Final = 2
"""Events that an answer must have kept away before the region is asked again."""
NEEDS_MAX: Final = 32
"""Regions that an answer may depend on: more where ranges lie across regions, which is rare on a hypercube."""
ASKING_MAX: Final = 256
"""Questions of a node that are under way at most."""
KNOWN_MAX: Final = 8_192
"""Regions that a node knows something of."""


class _IdleRegion:
    """A region that is idle, as far as this node knows."""

    __slots__ = ("until", "us", "uses")

    def __init__(self, until: int, us: int) -> None:
        self.until = until
        self.us = us
        self.uses = 0


class _WantedRegion:
    """A region that is not known to be idle: how often it was wished for, and when it may be asked again."""

    __slots__ = ("heard_at", "needed", "pause", "since", "until", "wishes")

    def __init__(self) -> None:
        self.heard_at = -PAUSE_US  # when it was last heard
        self.needed = WISHES
        self.pause = PAUSE_US
        self.until = 0
        self.wishes = 0
        self.since = 0  # from when on these count


class _IdleQuestion:
    """A question under way: is a region idle?"""

    __slots__ = ("asked_at", "request", "spoilt", "then", "timer", "us")

    def __init__(self, asked_at: int, us: int) -> None:
        self.asked_at = asked_at
        self.us = us  # the least that was heard so far
        self.spoilt = False  # something has come there since it was asked
        self.request = 0
        self.timer = 0
        self.then: list[Callable[[], None]] = []


class Quench(EntryListener):
    """The quenching of one node."""

    def __init__(
        self, runtime: Runtime, rpc: KeyedRpc, ownership: Ownership, cube: Cube, tables: IdTables, lease_us: int
    ) -> None:
        self._runtime = runtime
        self._rpc = rpc
        self._ownership = ownership
        self._cube = cube
        self._tables = tables
        self._lease_us = lease_us
        self._life = runtime.random.getrandbits(48)
        self._granted = RegionLeases(runtime, lease_us)
        self._idle: dict[Region, _IdleRegion] = {}
        self._lengths: Counter[int] = Counter()  # of these regions: there are few
        self._busy: dict[Region, _WantedRegion] = {}
        self._asking: dict[Region, _IdleQuestion] = {}
        rpc.do(IdleQuery, self._idle_query)

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of messages about idle regions."""
        return {RevokeIdle: self._revoke_idle}  # type: ignore[dict-item]

    # -- what Ownership tells ------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Note that a home owns ranges here that it did not own before."""
        self._granted.began(home, owed_us)

    def owed_us(self, home: HomeId) -> int:
        """Return how long others may still rely on what they were told here."""
        return self._granted.owed_us(home)

    def ended(self, home: HomeId) -> None:
        """Forget a home that is not here any more."""
        self._granted.ended(home)

    # -- who hands on --------------------------------------------------------------------------------------------------

    def is_idle(self, region: Region) -> bool:
        """Return whether nothing is wanted in a region and below it."""
        now = self._runtime.now
        for wider, lease in self._around(region):
            if lease.until > now:
                lease.uses += 1
                if lease.until - now < lease.us // 2 and lease.uses >= USES and not self._is_busy(wider):
                    self._ask(wider, ASK_US)
                return True
        return False

    def wish(self, region: Region) -> None:
        """Note an event to a region that is not known to be idle, and ask where that pays."""
        busy, now = self._busy_at(region), self._runtime.now
        if now - busy.since > self._lease_us * busy.needed // WISHES:
            busy.wishes, busy.since = 0, now
        busy.wishes += 1
        if busy.wishes >= busy.needed and busy.until <= now:
            busy.wishes, busy.since = 0, now
            self._ask(region, ASK_US)

    def _busy_at(self, region: Region) -> _WantedRegion:
        busy = self._busy.get(region)
        if busy is None:
            if len(self._busy) >= KNOWN_MAX:
                del self._busy[next(iter(self._busy))]
            busy = self._busy[region] = _WantedRegion()
        return busy

    def _known_until(self, region: Region, under: int) -> int:
        """Return how long a region is known to be idle, by regions whose rank is lower; 0: it is not."""
        found = (lease.until for wider, lease in self._around(region) if rank(wider, self._cube.width) < under)
        return max(found, default=0)

    def _around(self, region: Region) -> list[tuple[Region, _IdleRegion]]:
        """Return what is known of regions that hold another."""
        lengths = [length for length in self._lengths if length <= region.length]
        wider = [Region(region.bits & (1 << length) - 1, length) for length in lengths]
        return [(each, self._idle[each]) for each in wider if each in self._idle]

    # -- asking --------------------------------------------------------------------------------------------------------

    def _ask(self, region: Region, wait_us: int, then: Callable[[], None] | None = None) -> None:
        """Ask all owners of ids of a region; `then` when they have answered, or it has taken too long."""
        question = self._asking.get(region)
        if question is not None:
            if then is not None:
                question.then.append(then)
            return
        if len(self._asking) >= ASKING_MAX:
            if then is not None:
                then()
            return
        question = self._asking[region] = _IdleQuestion(self._runtime.now, self._lease_us)
        if then is not None:
            question.then.append(then)
        asked = question

        def answered(answer: Message, from_afar: bool) -> None:
            asked.us = min(asked.us, answer.us) if isinstance(answer, IdleReply) else 0
            if asked.us <= 0:
                end(0)

        def end(us: int) -> None:
            if self._asking.get(region) is asked:
                del self._asking[region]
                self._runtime.cancel(asked.timer)
                self._rpc.stop(asked.request)
                self._learn(region, asked, us)

        self._runtime.observe("reach_idle_asked")
        question.timer = self._runtime.after(wait_us, lambda: end(0))
        first, last = self._cube.ends(region)
        body = IdleQuery(PackedRegion.of(region), self._runtime.me, self._life, wait_us)
        request = self._rpc.run(first, last, body, lambda: end(asked.us), answered=answered)
        question.request = request
        if self._asking.get(region) is not asked:
            self._rpc.stop(request)  # answered here, before its number was known

    def _learn(self, region: Region, question: _IdleQuestion, us: int) -> None:
        us = 0 if question.spoilt else holder_us(us)
        until = question.asked_at + us
        if until > self._runtime.now:
            lease = self._idle.get(region)
            if lease is None or lease.until < until:
                self._forget(region)
                if len(self._idle) >= KNOWN_MAX:
                    self._forget(next(iter(self._idle)))
                self._idle[region] = _IdleRegion(until, us)
                self._lengths[region.length] += 1
            self._busy.pop(region, None)
        else:
            busy = self._busy_at(region)
            busy.heard_at = self._runtime.now
            busy.until = busy.heard_at + busy.pause
            busy.pause = min(2 * busy.pause, PAUSE_US_MAX)
            busy.needed = min(2 * busy.needed, WISHES_MAX)
        for then in question.then:
            then()

    def _forget(self, region: Region) -> None:
        if self._idle.pop(region, None) is not None:
            self._lengths[region.length] -= 1
            if not self._lengths[region.length]:
                del self._lengths[region.length]

    # -- being asked ---------------------------------------------------------------------------------------------------

    def _idle_query(self, home: Home, reached: Reached, question: IdleQuery, answer: Callable[[Message], None]) -> None:
        region = question.where.region(self._cube.width)
        if region is None or not (0 <= question.wait_us <= ASK_US and 0 <= question.life < 1 << 48):
            self._runtime.observe("question_malformed")
            return
        first, last = self._part(home, reached.key, region)
        wait_us = question.wait_us - question.wait_us // 4
        us, missing = self._look(home, first, last, region)
        if not missing or wait_us < ASK_US_MIN or any(map(self._is_busy, missing)):
            self._answer(question, region, us, answer)
            return

        def all_are_asked() -> None:
            # What it answers for must be held now, and all of it.
            if self._holds(home, first, last):
                self._answer(question, region, self._look(home, first, last, region)[0], answer)

        one_is_asked = when_all(len(missing), all_are_asked)
        for each in missing:
            self._ask(each, wait_us, one_is_asked)

    def _part(self, home: Home, key: bytes, region: Region) -> tuple[bytes, bytes]:
        """Return the keys of a region, from one on, that lie in the same range of a home."""
        ring = self._runtime.ring
        last, high = self._cube.ends(region)[1], self._ownership.arc(home.id, key).high
        return key, last if ring.distance(key, last) <= ring.distance(key, high) else high

    def _holds(self, home: Home, first: bytes, last: bytes) -> bool:
        if self._ownership.holder(first) is not home:
            return False
        ring = self._runtime.ring
        return ring.distance(first, last) <= ring.distance(first, self._ownership.arc(home.id, first).high)

    def _is_busy(self, region: Region) -> bool:
        """Return whether this node heard just now that a region is not idle.

        However often it heard that before: the asker has waited long enough, and is not to wait again.
        """
        busy = self._busy.get(region)
        return busy is not None and self._runtime.now - busy.heard_at < PAUSE_US

    def _look(self, home: Home, first: bytes, last: bytes, region: Region) -> tuple[int, list[Region]]:
        """Return how long this part of a region is idle, 0 if it is not; and of which regions more should be known."""
        table = self._tables.at(home.id)
        parts = list(pieces(self._runtime.ring, self._cube.width, first, last))
        needs = list(dict.fromkeys(lower for part in parts for lower in below(part)))
        if len(needs) > NEEDS_MAX or not all(table.is_empty(part) for part in parts):
            return 0, []
        under, now = rank(region, self._cube.width), self._runtime.now
        known = {need: self._known_until(need, under) - now for need in needs}
        us = min((self._lease_us, *known.values()))
        return max(us, 0), [need for need, left in known.items() if left < self._lease_us // 2]

    def _answer(self, question: IdleQuery, region: Region, us: int, answer: Callable[[Message], None]) -> None:
        if us and self._granted.grant(question.origin, question.life, region, us) is None:
            us = 0
        answer(IdleReply(us))

    # -- something has come --------------------------------------------------------------------------------------------

    def put(self, home: HomeId, point: int, then: Callable[[], None]) -> None:
        """Tell all who think a region idle of an entry at an id here: `then` when they know. Never, where the home
        goes.
        """
        told = [lease for lease in self._granted.all() if is_below(point, lease.region)]
        self._revoke(told, lambda: self._granted.when_ready(home, then))

    def _revoke(self, leases: Sequence[RegionLease], then: Callable[[], None]) -> None:
        """Revoke leases on idle regions; `then` when all holders know, or their leases are over."""
        is_over = when_all(1 + len(leases), then)
        for lease in leases:
            lease.waiting.append(is_over)
            if not lease.ended:
                lease.ended = True
                self._revoke_one(lease)
        is_over()

    def _revoke_one(self, lease: RegionLease) -> None:
        def heard(reply: Reply) -> bool:
            if isinstance(reply, RevokeIdleAck) and reply.known:
                self._granted.forget(lease)
                return True
            return False

        # Those who have not answered by then rely on it no longer.
        self._runtime.after(lease.until - self._runtime.now, lambda: self._granted.forget(lease))
        if lease.peer.id == self._runtime.me.id:
            if lease.life == self._life:
                self._revoke_below(lease.region, lambda: self._granted.forget(lease))
        else:
            self._runtime.observe("reach_awake_told")
            where = PackedRegion.of(lease.region)
            self._granted.tell(lease, lambda number: RevokeIdle(number, lease.life, where), heard)

    def _revoke_idle(self, source: Peer, message: RevokeIdle) -> None:
        region = message.where.region(self._cube.width)
        if region is None:
            self._runtime.observe("question_malformed")
        elif message.life != self._life:
            self._runtime.send(source, RevokeIdleAck(message.request, False))
        else:
            self._revoke_below(region, lambda: self._runtime.send(source, RevokeIdleAck(message.request, True)))

    def _revoke_below(self, region: Region, then: Callable[[], None]) -> None:
        """Forget that a region is idle: `then` when all who know it by this node know better."""
        self._forget(region)
        question = self._asking.get(region)
        if question is not None:
            question.spoilt = True
        at = rank(region, self._cube.width)
        self._revoke(
            [
                lease
                for lease in self._granted.all()
                if rank(lease.region, self._cube.width) > at and meets_below(region, lease.region)
            ],
            then,
        )

    def check(self) -> None:
        """Assert what must hold at all times."""
        self._granted.check()
        assert max(len(self._idle), len(self._busy)) <= KNOWN_MAX
        assert self._lengths.total() == len(self._idle)
