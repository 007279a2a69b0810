"""The scheme `reach`: subset routing (paper C), corrected, on any overlay that routes keys.

- Attributes are bits: a conjunction has an id, the bits that it needs, an event the bits that it has, and what matches
  is a subset (`ids`). An id lies at a key, with its owner; on the hypercube, ids that differ in one bit lie at one node
  or at neighbours.
- A conjunction lies, whole, at its id. An event goes to the owner of its own id, and from there down to the owners of
  all its subsets, each once (`duties`).
- The owner matches, brings the event to the homes of those that it satisfies, and answers when they have it.

Homes check again what comes, so that an entry too many costs a message and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.schema.schema import Schema
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.ring import BITS_MAX
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.base import PlacementScheme
from meetpoint.placement.dissemination.dissemination import ATTEMPT_US, PublishAttempt
from meetpoint.placement.dissemination.fanout import event_bytes
from meetpoint.placement.entries.entry_table import StoredEntry
from meetpoint.placement.messages import Entry, Stored
from meetpoint.schemes.reach.duties import Duties
from meetpoint.schemes.reach.entries import IdTables, entry_of, read_entry
from meetpoint.schemes.reach.ids import AttributeIds, Cube, Ids, SignatureIds
from meetpoint.schemes.reach.load_shedding import LoadShedding
from meetpoint.schemes.reach.messages import DutyReply, DutyRequest
from meetpoint.schemes.reach.quench import Quench
from meetpoint.schemes.reach.region_copies import RegionCopies

__all__ = ["Reach", "ReachSettings", "dimensions_of", "ids_of"]


class ReachSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `reach`, the same for all nodes of a network."""

    schema: str = ""
    """The attributes that have bits, as YAML. Without any, ids of attributes have no bits: all lies at one place."""
    ids: Literal["attributes", "signatures"] = "attributes"
    """A bit for each attribute, as in the paper; or bits by hash, of attributes and their values."""
    width: Annotated[int, msgspec.Meta(ge=1, le=BITS_MAX)] = 16
    """How many bits signatures have."""
    quench: Literal["quenched", "unquenched"] = "quenched"
    """Whether events are kept from where nothing is wanted."""
    copies: Literal["copied", "uncopied"] = "copied"
    """Whether those above a busy place have copies of what lies there, and answer for it."""
    pushing: Literal["pushed", "unpushed"] = "pushed"
    """Whether an id with many entries is pushed away to a home with few."""
    lease_us: Annotated[int, msgspec.Meta(ge=1)] = 10 * SECOND_US
    """How long others may rely on what they were told, or have copies of. A subscription may wait so long for a broker
    that was lost with either."""
    busy_per_s: Annotated[float, msgspec.Meta(ge=0)] = 50.0
    """How many events a second make a place busy."""
    push_above: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    """A home with more entries may push an id away."""


class Reach(PlacementScheme):
    """The scheme `reach` at one node."""

    def __init__(
        self, runtime: Runtime, overlay: Overlay, home_manager: HomeManager, node: NodeSettings, settings: ReachSettings
    ) -> None:
        self._cube = Cube(runtime.ring, ids_of(settings))
        self._tables = IdTables(runtime, self._cube)
        super().__init__(runtime, overlay, home_manager, node, self._tables)
        self._duties = Duties(
            runtime, home_manager, self._ownership, self._rpc, self._owner_cache, self._fanout, self._tables, self._cube
        )  # fmt: skip
        self._numbers = runtime.random.getrandbits(48)  # in each life others: a late word is of no attempt
        self._quench: Quench | None = None
        self._copies: RegionCopies | None = None
        self._load_shedding: LoadShedding | None = None
        if settings.quench == "quenched":
            self._quench = self._duties.quench = Quench(
                runtime, self._rpc, self._ownership, self._cube, self._tables, settings.lease_us
            )
            self._tables.listeners.append(self._quench)
        if settings.copies == "copied":
            self._copies = self._duties.copies = RegionCopies(
                runtime, self._ownership, self._cube, self._tables, settings.lease_us, settings.busy_per_s
            )
            self._tables.listeners.append(self._copies)
        if settings.pushing == "pushed":
            self._load_shedding = self._tables.marks = LoadShedding(
                runtime, home_manager, self._homes, self._ownership, self._cube, self._tables, settings.push_above,
                follows=overlay.places is not None,
            )  # fmt: skip

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of the scheme's messages."""
        own = [each.handlers() for each in (self._quench, self._copies) if each is not None]
        return {kind: handler for each in (*own, super().handlers()) for kind, handler in each.items()}

    def start(self) -> None:
        """Look from now on whether this node has too much."""
        if self._load_shedding is not None:
            self._load_shedding.start()

    def check(self) -> None:
        """Assert what must hold at all times."""
        super().check()
        self._duties.check()
        for each in (self._quench, self._copies):
            if each is not None:
                each.check()

    # -- placing -------------------------------------------------------------------------------------------------------

    def _entries(self, home: HomeId, number: int, filter_: Filter, at: int) -> list[Entry]:
        return [entry_of(self._cube, StoredEntry(number, at, filter_.text), filter_.conjunctions[at])]

    def _accept(self, home: Home, name: str, entry: Entry, answer: Callable[[Message], None]) -> None:
        """Place an entry at a home here."""
        item = read_entry(self._cube, name, entry)
        if item is None:
            self._runtime.observe("entry_malformed")
            return
        point = item.read.place

        def are_told() -> None:
            """Tell copies, now that nobody keeps events from the entry any more."""
            if self._copies is None:
                answer(Stored())
            else:
                self._copies.put(home.id, name, entry, point, lambda: answer(Stored()))

        def is_safe(_: object) -> None:
            if self._quench is None:
                are_told()
            else:
                self._quench.put(home.id, point, are_told)

        self._ownership.put(home, name, entry).then(is_safe)

    # -- carrying events -----------------------------------------------------------------------------------------------

    def _begin(self, attempt: PublishAttempt) -> None:
        self._numbers += 1
        event = self._cube.of_event(attributes_of(attempt.content))
        floor, until = self._duties.floor, self._runtime.now + ATTEMPT_US
        handle = DutyRequest(
            attempt.event, self._numbers, attempt.floor, b"", b"", floor, ATTEMPT_US, 0, attempt.content
        )  # fmt: skip

        def handled(answer: DutyReply, from_afar: bool) -> None:
            if attempt.alive:
                self._runtime.observe("regions_served", answer.served, event_bytes(attempt.event))
                if answer.left:
                    self._runtime.observe("reach_left", len(answer.left))
                self._bring_the_rest(attempt, dict(answer.left), until - self._runtime.now)

        number = self._duties.hand(event, handle, handled)
        if attempt.alive:
            attempt.on_end = lambda: self._rpc.stop(number)


class _NoIds:
    """Ids without bits: every conjunction lies at one place, and every event goes there."""

    width = 1

    def of_event(self, attributes: Mapping[str, object]) -> int:
        """Return no bits."""
        return 0

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """Return no bits."""
        return 0


def ids_of(settings: ReachSettings) -> Ids:
    """Return the ids of a network with these settings."""
    schema = Schema.from_yaml(settings.schema) if settings.schema else None
    if settings.ids == "signatures":
        return SignatureIds(schema, settings.width)
    return _NoIds() if schema is None else AttributeIds(schema)


def dimensions_of(settings: ReachSettings) -> int:
    """Return how many bits of ids choose a place: the dimensions of a hypercube."""
    return min(ids_of(settings).width, BITS_MAX)
