"""Load shedding: a home with many entries gives one id, with all that lies there, to a home with few.

After paper C, section 4.4. Which ids a node hosts follows from the hypercube, and some ids are far more popular than
others. So a node that has many entries asks a few others for theirs, and gives the id that helps most to the one that
has least, where that makes the fuller of the two clearly less full. Ranges change hands as they always do
(`Ownership.give`), so that requests for the id find it: the overlay leads to where it was, and from there it is one
message more.

A *mark* goes along, an entry at the id's key that is no conjunction. It says that the id stays where it is, though the
overlay leads elsewhere, and where it came from. When few entries are left the mark is taken away; then the id follows
the overlay again, or goes back where it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from meetpoint.api.ids import HomeId, NodeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.home_rpc import HomeRpc
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.schemes.reach.entries import IdTables
from meetpoint.schemes.reach.ids import Cube
from meetpoint.schemes.reach.messages import LoadQuery, LoadReply

__all__ = ["MARK", "LoadShedding"]

MARK: Final = "pushed/"
"""The beginning of the names of marks; the key follows."""
LOOK_US: Final = 5 * SECOND_US
"""How often a node looks whether it has too much."""
ASKED: Final = 4
"""Other homes that are asked how much they have."""
TIMEOUT_US: Final = SECOND_US
RELIEF: Final = 0.2
"""How much less the fuller one must have afterwards, as a part of what this node has."""
BACK: Final = 8
"""An id that was pushed goes back when it has less than this part of what would push one away."""
LOAD_MAX: Final = 1 << 40


class _Load(NamedTuple):
    """The number of entries of another node, and a home of it."""

    entries: int
    node: NodeId
    home: HomeId


class LoadShedding:
    """The load shedding of one node.

    `follows`: the overlay says which keys are whose, and what is not marked follows it.
    """

    def __init__(
        self,
        runtime: Runtime,
        home_manager: HomeManager,
        homes: HomeRpc,
        ownership: Ownership,
        cube: Cube,
        tables: IdTables,
        above: int,
        *,
        follows: bool,
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._homes = homes
        self._ownership = ownership
        self._cube = cube
        self._tables = tables
        self._above = above
        self._follows = follows
        self._marks: dict[HomeId, dict[str, Entry]] = {}
        self._busy = False
        homes.answer(LoadQuery, self._load_query)

    def start(self) -> None:
        """Look now and then, from now on."""
        self._runtime.after(LOOK_US + self._runtime.random.randrange(LOOK_US // 2), self._look)

    # -- marks ---------------------------------------------------------------------------------------------------------

    def marked(self, home: HomeId, name: str, entry: Entry) -> bool:
        """Add an entry at a home here if it is a mark; return whether it is."""
        if name != _name(entry.low) or entry.low != entry.high or not self._runtime.ring.holds(entry.low):
            return False
        self._marks.setdefault(home, {})[name] = entry
        return True

    def unmarked(self, home: HomeId, name: str) -> None:
        """Remove a mark from a home here."""
        self._marks.get(home, {}).pop(name, None)

    def ended(self, home: HomeId) -> None:
        """Forget a home that is not here any more."""
        self._marks.pop(home, None)

    def pinned(self, home: HomeId) -> tuple[KeyRange, ...]:
        """Return the ranges that stay at a home here."""
        return tuple(sorted(self._arc(entry.low) for entry in self._marks.get(home, {}).values()))

    def _arc(self, key: bytes) -> KeyRange:
        """Return the range of all keys that stand for one id, from its own on."""
        ring = self._runtime.ring
        return KeyRange(bytes(ring.add(key, -1)), bytes(ring.add(key, (1 << ring.bits - self._cube.width) - 1)))

    # -- looking -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self.start()
        for home in sorted(self._home_manager.homes):
            for name, entry in sorted(self._marks.get(home, {}).items()):
                count = len(self._tables.at(home).groups.get(self._cube.point(entry.low), ()))
                was_never_given = entry.body == home and not self._busy
                if was_never_given or count * BACK < self._above:
                    self._take_back(self._home_manager.homes[home], name, entry)
        if not self._busy and self._load() > self._above:
            self._query_loads()

    def _load(self) -> int:
        return sum(len(self._tables.at(home)) for home in self._home_manager.homes)

    def _query_loads(self) -> None:
        """Ask some homes elsewhere how much they have, and push an id to the one that has least."""
        directory, me = self._home_manager.directory, self._runtime.me.id
        others = [entry.home for entry in directory.entries() if not entry.gone and entry.host.id != me]
        asked = self._runtime.random.sample(sorted(others), min(ASKED, len(others)))
        heard: list[_Load] = []
        left = len(asked)
        self._busy = bool(asked)

        def answered(home: HomeId, reply: Reply | None) -> None:
            nonlocal left
            left -= 1
            if isinstance(reply, LoadReply) and 0 <= reply.entries <= LOAD_MAX and reply.takes:
                heard.append(_Load(reply.entries, reply.node, home))
            if not left:
                self._busy = False
                self._push(sorted(heard))

        for each in asked:
            self._homes.ask(each, LoadQuery(0, each), TIMEOUT_US).then(partial(answered, each))

    def _load_query(self, question: LoadQuery) -> Signal[Reply]:
        takes = question.home in self._home_manager.homes and self._ownership.is_stable(question.home)
        return Signal.of(LoadReply(question.request, self._load(), self._runtime.me.id, takes))

    # -- pushing and taking back ---------------------------------------------------------------------------------------

    def _push(self, loads: Iterable[_Load]) -> None:
        least = next(iter(loads), None)
        if least is None:
            return
        mine = self._load()

        def after(count: int) -> int:
            """Return what the fuller of the two has, when so many entries have gone."""
            return max(mine - count, least.entries + count)

        best: tuple[int, HomeId, int] | None = None
        for home in sorted(self._home_manager.homes):
            if not self._ownership.may_give(home):
                continue
            for point, items in self._tables.at(home).groups.items():
                key = bytes(self._cube.key(point))
                choice = (after(len(items)), home, point)
                is_here = self._ownership.owned_ranges[home].arc(key) is not None
                if is_here and _name(key) not in self._marks.get(home, {}) and (best is None or choice < best):
                    best = choice
        if best is not None and best[0] <= mine * (1 - RELIEF):
            self._give(self._home_manager.homes[best[1]], best[2], least.home)

    def _give(self, home: Home, point: int, to: HomeId) -> None:
        key = bytes(self._cube.key(point))
        name = _name(key)
        self._busy = True

        def safe(_: object) -> None:
            self._busy = False
            if self._home_manager.homes.get(home.id) is home and home.id in self._ownership.owned_ranges:
                if self._ownership.give(home, self._arc(key), to):
                    self._runtime.observe("reach_pushed")
                else:
                    self._ownership.remove(home, name)

        self._ownership.put(home, name, Entry(key, key, bytes(home.id))).then(safe)

    def _take_back(self, home: Home, name: str, entry: Entry) -> None:
        """Take back an id that was pushed and has few entries left, or that was never given."""
        if not self._ownership.may_give(home.id) or self._ownership.owned_ranges[home.id].arc(entry.low) is None:
            return
        self._runtime.observe("reach_pushed_back")
        self._ownership.remove(home, name)
        back = HomeId(entry.body)
        if not self._follows and self._runtime.ring.holds(entry.body) and back != home.id:
            self._ownership.give(home, self._arc(entry.low), back)


def _name(key: bytes) -> str:
    return MARK + key.hex()
