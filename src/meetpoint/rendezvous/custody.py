"""Which home answers for a key: at every moment at most one, whatever the overlay believes.

An overlay leads a key to whoever seems responsible now; under churn two nodes may both seem so, or the one that does
has nothing of what was placed there. Custody is the truth behind it. Each home holds arcs of the circle, in a record
that is safe like all its records, and arcs change hands only by agreement of the two homes concerned:

- Founders begin with the arcs between them.
- A home that comes later *seeks*: it asks the homes that follow it on the circle, and the one in whose arc it lies
  gives it the part up to its place. A home that is to end has the next one *take* all it holds.
- Who gives an arc writes so on two disks before anyone hears of it, and answers for it no longer. Who gets it pulls
  what was placed there, and answers for it once all is safe. Then the giver forgets it.

So a node that is reached for a key either holds it, with everything that was ever placed there, or says that it does
not, and whoever asked tries another. A crash delays; it never gives a wrong answer. Between giving and getting nobody
answers for the arc: questions wait.

Should every copy of a home be lost, nobody holds its arcs. When the home, or a new one in its place, has asked all
others twice, and nothing changed between, it takes the gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from meetpoint.protocol.home import Home
from meetpoint.protocol.hosting import Hosting
from meetpoint.protocol.messages import Reply
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.services import Services
from meetpoint.protocol.settings import NodeSettings
from meetpoint.rendezvous.arcs import Arc, founding_arcs
from meetpoint.rendezvous.holdings import Given, Holding, is_on, joined, split
from meetpoint.rendezvous.homes import Homes
from meetpoint.rendezvous.messages import (
    Entry,
    Forgot,
    Pull,
    Pulled,
    Seek,
    Sought,
    Take,
    Taken,
    Took,
)

__all__ = ["PLACED", "Custody", "Keeping"]

CUSTODY: Final = "custody"
PLACED: Final = "placed/"
"""Records with this prefix are entries; their names go on with whose they are."""
PAGE_BYTES_MAX: Final = 256 << 10
"""About how many bytes of entries are pulled at one time."""
PAGE_MAX: Final = 1_000
WAIT_US: Final = 500_000
"""How long to wait before a question is put again."""
REMIND_US: Final = 5_000_000
"""How long a home that sought an arc may take to pull it, before it is told of it."""


class Keeping:
    """Who works with what is placed at the homes of a node; a scheme makes its own of it."""

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs here that it did not hold before, of which others may have been told.

        `owed_us` is how long they may still rely on that: 0 where nobody held the arcs, None where nobody knows.
        """

    def owed_us(self, home: HomeId) -> int:
        """How long others may still rely on what a home here has told them, or may have told."""
        return 0

    def ended(self, home: HomeId) -> None:
        """A home holds nothing here any more."""

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """An entry lies at a home here."""

    def removed(self, home: HomeId, name: str) -> None:
        """An entry does no longer."""


class Custody:
    """The arcs of the homes that this node hosts, and what is placed there."""

    def __init__(
        self, services: Services, settings: NodeSettings, hosting: Hosting, homes: Homes, keeping: Keeping
    ) -> None:
        self._services = services
        self._settings = settings
        self._hosting = hosting
        self._homes = homes
        self._keeping = keeping
        self._founding: dict[bytes, Arc] = {}
        self.holdings: dict[HomeId, Holding] = {}
        self.entries: dict[HomeId, dict[str, Entry]] = {}
        self._hidden: dict[HomeId, list[Arc]] = {}  # arcs of homes here that are not safe yet
        self._pulling: dict[tuple[HomeId, HomeId, int], None] = {}
        self._telling: dict[tuple[HomeId, HomeId, int], None] = {}
        self._giving: dict[tuple[HomeId, HomeId, int], None] = {}
        homes.answer(Seek, self._seek)
        homes.answer(Pull, self._pull)
        homes.answer(Took, self._took)
        homes.answer(Take, self._take)

    def found(self, homes: Sequence[HomeId]) -> None:
        """The network begins with these homes."""
        self._founding = founding_arcs(homes)

    # -- who asks ------------------------------------------------------------------------------------------------------

    def holder(self, key: bytes) -> Home | None:
        """The home here that answers for a key; None where none does."""
        for home, holding in self.holdings.items():
            if holding.arc(key) is not None:
                return None if self._is_hidden(home, key) else self._hosting.homes.get(home)
        return None

    def is_settled(self, home: HomeId) -> bool:
        """Whether a home here answers for all that it holds."""
        return home in self.holdings and not self._hidden.get(home)

    def _is_hidden(self, home: HomeId, key: bytes) -> bool:
        return any(arc.holds(key) for arc in self._hidden.get(home, ()))

    def arc(self, home: HomeId, key: bytes) -> Arc:
        """The arc of a home that a key lies on."""
        arc = self.holdings[home].arc(key)
        assert arc is not None
        return arc

    # -- what is placed ------------------------------------------------------------------------------------------------

    def put(self, home: Home, name: str, entry: Entry, then: Callable[[], None]) -> None:
        """Keep an entry at a home that holds some of its keys; `then` when it is safe."""
        entries = self.entries[home.id]
        if entries.get(name) == entry:
            home.keeper.write((), (), then)  # asked before: the write may still be on its way to the second disk
            return
        if name in entries:
            self._keeping.removed(home.id, name)
        entries[name] = entry
        self._keeping.added(home.id, name, entry)
        home.keeper.write([(PLACED + name, msgspec.msgpack.encode(entry))], (), then)

    def remove(self, home: Home, name: str, then: Callable[[], None]) -> None:
        """Forget an entry; `then` when that is safe."""
        self._drop(home, [name])
        home.keeper.write((), (PLACED + name,), then)

    def _drop(self, home: Home, names: list[str]) -> None:
        entries = self.entries[home.id]
        for name in names:
            if entries.pop(name, None) is not None:
                self._keeping.removed(home.id, name)

    # -- homes that come and go ----------------------------------------------------------------------------------------

    def home_started(self, home: Home) -> None:
        """A home serves here: it holds arcs already, or seeks one."""
        record = home.keeper.records.get(CUSTODY)
        if record is not None and record.value is not None:
            self._begin(home, msgspec.msgpack.decode(record.value, type=Holding))
        elif home.id in self._founding:
            first = Holding(1, (self._founding.pop(home.id),))
            self._write(home, first)
            self._begin(home, first, owed_us=0)
        else:
            self._seek_from(home, 0, {}, None)

    def _begin(self, home: Home, holding: Holding, *, owed_us: int | None = None) -> None:
        self.holdings[home.id] = holding
        entries = self.entries[home.id] = {}
        stray = []
        for name, record in sorted(home.keeper.records.items()):
            if not name.startswith(PLACED) or record.value is None:
                continue
            entry = msgspec.msgpack.decode(record.value, type=Entry)
            if is_on(entry, holding.arcs) or any(is_on(entry, (given.arc,)) for given in holding.given):
                entries[name.removeprefix(PLACED)] = entry
            else:
                stray.append(name)  # pulled, before the node crashed, for an arc that it did not get
        if stray:
            home.keeper.write((), stray)
        self._keeping.began(home.id, owed_us)
        for name, entry in entries.items():
            self._keeping.added(home.id, name, entry)
        for source, number in holding.taken:
            self._tell_taken(home, source, number)
        for given in holding.given:
            self._have_taken(home, given)
        self._seek_from(home, 0, {}, None)

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer."""
        self._hidden.pop(home, None)
        if self.holdings.pop(home, None) is not None:
            del self.entries[home]
            self._keeping.ended(home)

    def _is_here(self, home: Home) -> bool:
        return self._hosting.homes.get(home.id) is home

    def _write(
        self,
        home: Home,
        holding: Holding,
        values: Sequence[tuple[str, bytes]] = (),
        erased: Sequence[str] = (),
        then: Callable[[], None] | None = None,
    ) -> None:
        home.keeper.write([*values, (CUSTODY, msgspec.msgpack.encode(holding))], erased, then)

    def _change(self, home: Home, holding: Holding, then: Callable[[], None] | None = None) -> None:
        """From now on a home holds something else."""
        self.holdings[home.id] = holding
        self._write(home, holding, then=then)

    # -- seeking an arc ------------------------------------------------------------------------------------------------

    def _is_placed(self, home: Home) -> bool:
        holding = self.holdings.get(home.id)
        return holding is not None and holding.placed

    def _seek_from(self, home: Home, turn: int, heard: dict[HomeId, Sought], before: dict[HomeId, int] | None) -> None:
        """Ask the homes that follow, nearest first. `before` are the versions that the round before this one heard."""
        if not self._is_here(home) or self._is_placed(home):
            return
        homes = self._hosting.directory.homes()
        following = [each for each in homes if each > home.id] + [each for each in homes if each < home.id]

        def again(at: int, heard: dict[HomeId, Sought], before: dict[HomeId, int] | None) -> None:
            self._services.after(WAIT_US // 2, lambda: self._seek_from(home, at, heard, before))

        def answered(reply: Reply | None) -> None:
            if not self._is_here(home):
                return
            if not isinstance(reply, Sought):
                again(turn + 1, heard, before)
            elif reply.arc is not None and self._is_arc(reply.arc):
                self._pull_from(home, holder, reply.number, reply.arc)
            elif reply.settled:
                self._merge(holder, reply.digest)
                self._seek_from(home, turn + 1, {**heard, holder: reply}, before)
            else:
                # Who does not list this home yet gives it nothing, and learns of it now.
                again(turn if self._merge(holder, reply.digest) else turn + 1, heard, before)

        if turn < len(following):
            holder = following[turn]
            timeout = self._settings.query_timeout_us
            self._homes.ask(holder, lambda number: Seek(number, holder, home.id), answered, timeout)
            return
        versions = {each: reply.version for each, reply in heard.items()}
        merged = all(self._hosting.directory.has_merged(reply.digest) for reply in heard.values())
        if heard.keys() == set(following) and merged and versions == before:
            self._take_gap(home, [arc for reply in heard.values() for arc in reply.arcs])
        else:
            again(0, {}, versions)

    def _merge(self, holder: HomeId, digest: bytes) -> bool:
        """Compare lists that differ: who has merged those of all homes in its own knows all homes that serve."""
        host = self._hosting.directory.host(holder)
        differ = host is not None and host.id != self._services.me.id and digest != self._hosting.directory.digest
        if host is not None and differ:
            self._hosting.directory.compare(host, lambda _: None)
        return differ

    def _is_arc(self, arc: Arc) -> bool:
        return self._services.ring.holds(arc.low) and self._services.ring.holds(arc.high)

    def _take_gap(self, home: Home, arcs: list[Arc]) -> None:
        """Nobody holds the place of this home: all copies of what lay there are lost."""
        self._services.observe("arc_lost")
        ring, holding = self._services.ring, self.holdings.get(home.id)
        arcs = arcs if holding is None else [*arcs, *holding.arcs]
        low = min((arc.high for arc in arcs), key=lambda high: ring.distance(high, home.id), default=home.id)
        self._complete(home, None, Arc(low, bytes(home.id)), {}, None)

    def _seek(self, question: Seek, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.holder)
        holding = self.holdings.get(question.holder)
        digest = self._hosting.directory.digest
        if home is None or holding is None:
            # Of two that have nothing, and wait for each other, the lower one may take a gap.
            settled = home is not None and question.home < question.holder
            reply(Sought(question.request, None, 0, 0, (), settled, digest))
            return
        if question.home == question.holder or self._hosting.directory.host(question.home) is None:
            reply(Sought(question.request, None, 0, holding.version, holding.arcs, False, digest))
            return
        given = next((each for each in holding.given if each.home == question.home and not each.ending), None)
        if given is None:
            arc = holding.arc(question.home)
            if arc is None or self._hidden.get(home.id):
                settled = arc is None and not holding.given
                reply(Sought(question.request, None, 0, holding.version, holding.arcs, settled, digest))
                return
            given, holding = split(holding, arc, question.home)
            self._change(home, holding)
        gift = given
        answer = Sought(question.request, gift.arc, gift.number, holding.version, holding.arcs, True, digest)

        def safe() -> None:
            reply(answer)
            self._have_taken(home, gift, REMIND_US)

        home.keeper.write((), (), safe)

    # -- pulling what was placed there ---------------------------------------------------------------------------------

    def _pull_from(self, home: Home, holder: HomeId, number: int, arc: Arc) -> None:
        """Pull page by page; once all is safe, this home answers for the arc."""
        key = (home.id, holder, number)
        if key in self._pulling:
            return
        self._pulling[key] = None
        pulled: dict[str, bytes] = {}

        def answered(reply: Reply | None) -> None:
            if not self._is_here(home):
                self._pulling.pop(key, None)
            elif not isinstance(reply, Pulled):
                self._services.after(WAIT_US, ask)
            elif reply.records is None:
                del self._pulling[key]  # an old offer
                self._seek_from(home, 0, {}, None)
            else:
                page = [each for each in reply.records if _is_entry(*each)]
                if len(page) < len(reply.records):
                    self._services.observe("entry_malformed", len(reply.records) - len(page))
                pulled.update(page)
                if not reply.more:
                    del self._pulling[key]
                    self._complete(home, (holder, number), arc, pulled, reply.owed_us)
                elif page:
                    home.keeper.write(page, (), ask)
                else:
                    self._services.after(WAIT_US, ask)

        def ask() -> None:
            if self._is_here(home):
                last = max(pulled, default=PLACED).removeprefix(PLACED)
                timeout = self._settings.query_timeout_us
                self._homes.ask(holder, lambda each: Pull(each, holder, home.id, number, last), answered, timeout)
            else:
                self._pulling.pop(key, None)

        ask()

    def _complete(
        self,
        home: Home,
        source: tuple[HomeId, int] | None,
        arc: Arc,
        pulled: dict[str, bytes],
        owed_us: int | None,
    ) -> None:
        """All that was placed on an arc is here: once that is safe, this home answers for it."""
        before = self.holdings.get(home.id)
        if before is None:
            before = self.holdings[home.id] = Holding(0, (), placed=False)
            self.entries[home.id] = {}
        if source in before.taken:
            return
        holding = msgspec.structs.replace(
            before,
            version=max(before.version, (home.keeper.epoch - 1) << 32) + 1,  # none twice, whatever was lost
            arcs=joined((*before.arcs, arc)),
            taken=before.taken if source is None else (*before.taken, source),
            placed=before.placed or arc.holds(home.id),
        )
        self.holdings[home.id] = holding
        self._hidden.setdefault(home.id, []).append(arc)

        def safe() -> None:
            if not self._is_here(home) or home.id not in self._hidden:
                return
            self._hidden[home.id].remove(arc)
            self._keeping.began(home.id, owed_us)
            for name, value in pulled.items():
                self._add(home, name.removeprefix(PLACED), msgspec.msgpack.decode(value, type=Entry))
            if source is not None:
                self._tell_taken(home, *source)

        self._write(home, holding, list(pulled.items()), then=safe)

    def _add(self, home: Home, name: str, entry: Entry) -> None:
        if name not in self.entries[home.id]:
            self.entries[home.id][name] = entry
            self._keeping.added(home.id, name, entry)

    def _pull(self, question: Pull, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.holder)
        holding = self.holdings.get(question.holder)
        if home is None or holding is None:
            return  # not here, or not yet: the question comes again
        given = next((each for each in holding.given if each.number == question.number), None)
        if given is None or given.home != question.home:
            reply(Pulled(question.request, None, False))
            return
        page: list[tuple[str, bytes]] = []
        size = 0
        for name, value in self._placed_on(home, given.arc, question.after):
            if size >= PAGE_BYTES_MAX or len(page) >= PAGE_MAX:
                reply(Pulled(question.request, tuple(page), True))
                return
            page.append((name, value))
            size += len(value)
        reply(Pulled(question.request, tuple(page), False, self._keeping.owed_us(home.id)))

    def _placed_on(self, home: Home, arc: Arc, after: str = "") -> Iterator[tuple[str, bytes]]:
        entries = self.entries[home.id]
        for name in sorted(name for name, entry in entries.items() if name > after and is_on(entry, (arc,))):
            yield PLACED + name, msgspec.msgpack.encode(entries[name])

    def _tell_taken(self, home: Home, holder: HomeId, number: int) -> None:
        """Have the giver forget an arc; goes on until it has, or is gone."""
        key = (home.id, holder, number)
        if key in self._telling:
            return
        self._telling[key] = None

        def answered(reply: Reply | None) -> None:
            entry = self._hosting.directory.get(holder)
            holding = self.holdings.get(home.id)
            if not self._is_here(home) or holding is None:
                del self._telling[key]
            elif isinstance(reply, Forgot) or (entry is not None and entry.gone):
                del self._telling[key]
                taken = tuple(each for each in holding.taken if each != (holder, number))
                self._change(home, msgspec.structs.replace(holding, taken=taken))
            else:
                self._services.after(self._settings.query_timeout_us, ask)

        def ask() -> None:
            timeout = self._settings.query_timeout_us
            self._homes.ask(holder, lambda each: Took(each, holder, home.id, number), answered, timeout)

        ask()

    def _took(self, question: Took, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.holder)
        holding = self.holdings.get(question.holder)
        if home is None or holding is None:
            return  # not here, or not yet: the question comes again
        given = next((each for each in holding.given if each.number == question.number), None)
        if given is not None and given.home == question.home:
            left = tuple(each for each in holding.given if each is not given)
            holding = msgspec.structs.replace(holding, given=left)
            arcs = (*holding.arcs, *(each.arc for each in left))
            entries = self.entries[home.id]
            names = [name for name, entry in entries.items() if not is_on(entry, arcs)]
            self._drop(home, names)
            self.holdings[home.id] = holding
            self._write(home, holding, erased=[PLACED + name for name in names])
        home.keeper.write((), (), lambda: reply(Forgot(question.request)))

    # -- ending --------------------------------------------------------------------------------------------------------

    def is_free(self, home: Home) -> bool:
        """Whether a home holds nothing and owes nothing: it may end."""
        holding = self.holdings.get(home.id)
        return holding is not None and not (holding.arcs or holding.given or holding.taken)

    def free(self, home: Home) -> None:
        """Let the next home take all that this one holds."""
        holding = self.holdings.get(home.id)
        homes = self._hosting.directory.homes()
        heir = next((each for each in homes if each > home.id), homes[0])
        if holding is None or not (holding.placed and holding.arcs) or heir == home.id:
            return  # nothing to give, or nobody to give it to
        if holding.given or holding.taken:
            return  # something is on its way
        number = holding.version
        for arc in holding.arcs:
            number += 1
            holding = msgspec.structs.replace(holding, given=(*holding.given, Given(number, heir, arc, ending=True)))
        holding = msgspec.structs.replace(holding, version=number, arcs=())
        given = holding.given

        def safe() -> None:
            if self._is_here(home):
                for each in given:
                    self._have_taken(home, each)

        self._change(home, holding, safe)

    def _have_taken(self, home: Home, given: Given, wait_us: int = 0) -> None:
        """Tell another home that it gets an arc; goes on until it has it, and this one has forgotten it."""
        key = (home.id, given.home, given.number)
        if key in self._giving:
            return
        self._giving[key] = None

        def ask() -> None:
            holding = self.holdings.get(home.id)
            if not self._is_here(home) or holding is None or given not in holding.given:
                del self._giving[key]
                return
            entry = self._hosting.directory.get(given.home)
            if entry is not None and entry.gone:
                # It ended before it heard of this: what it never had, another may get.
                del self._giving[key]
                self._keep_after_all(home, holding, given)
                return
            timeout = self._settings.query_timeout_us
            self._homes.ask(
                given.home,
                lambda each: Take(each, given.home, home.id, given.number, given.arc),
                lambda _: (self._services.after(timeout, ask), None)[1],
                timeout,
            )

        if wait_us:
            self._services.after(wait_us, ask)
        else:
            ask()

    def _keep_after_all(self, home: Home, holding: Holding, given: Given) -> None:
        left = tuple(each for each in holding.given if each != given)
        arcs = joined((*holding.arcs, given.arc))
        self._change(home, msgspec.structs.replace(holding, version=holding.version + 1, arcs=arcs, given=left))

    def _take(self, question: Take, reply: Callable[[Reply], None]) -> None:
        home = self._hosting.homes.get(question.home)
        if home is None or self._hosting.directory.host(question.holder) is None or not self._is_arc(question.arc):
            return  # not here, or not yet, or from nobody: the question comes again
        holding = self.holdings.get(question.home, Holding(0, (), placed=False))
        if any(given.ending for given in holding.given):
            return  # about to end itself: nothing is to come any more
        if (question.holder, question.number) not in holding.taken:
            self._pull_from(home, question.holder, question.number, question.arc)
        reply(Taken(question.request))

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold at all times."""
        for home, holding in self.holdings.items():
            assert home in self._hosting.homes
            highs = [arc.high for arc in holding.arcs]
            for arc in holding.arcs:
                others = [each for each in holding.arcs if each is not arc]
                assert not any(each.holds(arc.high) for each in others), f"arcs that overlap: {holding.arcs}"
            assert len(set(highs)) == len(highs)


def _is_entry(name: str, value: bytes) -> bool:
    """Whether a record that a peer sent is an entry."""
    try:
        msgspec.msgpack.decode(value, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return name.startswith(PLACED)
