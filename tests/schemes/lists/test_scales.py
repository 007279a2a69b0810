"""The scales of `lists:order` changed while a network runs, under faults: nothing is missed, nothing comes twice, and
in the end all lies by one version, evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from meetpoint.api.ids import HomeId
from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.language.filters.filter import Filter
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Kind
from meetpoint.matching.keys.feedback import Feedback, MeasuredQuantiles
from meetpoint.matching.keys.statistics import Statistics
from meetpoint.node.cluster.config_epochs import BASE, ConfigEpochs, Stage
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.node import Node
from meetpoint.node.overlay import Overlay
from meetpoint.node.runtime.flow import DONE, Signal
from meetpoint.node.runtime.inputs import Instant, Measured
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.messages import Entry as Placed
from meetpoint.schemes.lists import Lists, ListsSettings, scheme
from meetpoint.schemes.lists.collection import AttributeOrder, Group, groups_of, read_entry
from meetpoint.schemes.lists.entries import ListEntry, next_point
from meetpoint.schemes.lists.subids import FlatEvent
from meetpoint.schemes.lists.value_hash import PARTS, Hashing, HashingVersions, read_cuts
from tests.placement.eyes import Overseen, parts
from tests.schemes.busy import Busy, judge, network

SCHEMA = """
attributes:
  price: {type: float, min: 0, max: 1000, precision: 0.01}
  size: {type: integer, min: 0, max: 1000000}
  level: {type: integer, min: 0, max: 24}
  symbol: string
"""


def draw_price(random: Random) -> float:
    return round(min(random.lognormvariate(0, 1), 1000), 2)


def draw_level(random: Random) -> int:
    return min(int(random.expovariate(0.6)), 24)


def draw_event(random: Random) -> dict[str, object]:
    size = int(random.random() ** 8 * 1e6)
    return {"price": draw_price(random), "size": size, "level": draw_level(random), "symbol": f"S{random.randrange(4)}"}


def draw_filter(random: Random) -> str:
    low, level = draw_price(random), draw_level(random)
    price = f"price BETWEEN {low} AND {round(low * 1.5 + 0.02, 2)}"
    size = f"size < {int(random.random() ** 8 * 1e6)}"
    levels = f"level BETWEEN {level} AND {level + random.randrange(4)}"
    return random.choice(
        (price, levels, f"{price} AND {size}", f"{size} AND {levels}", f"symbol = 'S2' AND {levels} OR {price}")
    )


def measured(seed: int, scale: float = 1.0) -> Feedback:
    random = Random(seed)
    events = [draw_event(random) for _ in range(800)]
    lines = {
        name: MeasuredQuantiles(Kind.NUMBER, tuple(sorted(float(event[name]) * scale for event in events)))  # type: ignore[arg-type]
        for name in ("price", "size", "level")
    }
    return Feedback(Statistics.of_events([]), lines=lines)


def config(mode: str = "coordinated", overlay: str = "chord") -> NetworkConfig:
    settings = ListsSettings(mode=mode, hash="order", schema=SCHEMA)  # type: ignore[arg-type]
    return NetworkConfig(overlay=overlay, scheme="lists", lists=settings)


def give(net: Network, at_s: float, feedback: Feedback, count: int, random: Random) -> None:
    """At some moment some of the nodes that are up are given a file."""

    def load() -> None:
        up = net.cluster.alive()
        for process in random.sample(up, min(count, len(up))):
            net.engine.feed(process, Measured(feedback))

    net.engine.call(net.engine.now + int(at_s * SECOND_US), load)


def schemes(net: Network) -> Iterator[Lists]:
    for process in net.cluster.alive():
        assert isinstance(process.node, Node)
        assert isinstance(process.node.scheme, Lists)
        yield process.node.scheme


def versions(net: Network) -> set[tuple[bytes, ...]]:
    return {scheme._epochs.bodies for scheme in schemes(net)}


BUSY = Busy(draw_filter=draw_filter, draw_event=draw_event, subscriptions=20, ended=5, changed=10, added=30, events=150)


def switched(mode: str, faults: str, seed: int) -> Network:
    """A busy network that is given a file at some brokers, and, before all have come to it, another one at others."""
    random = Random(f"{mode}/{faults}/{seed}")
    net = network(config(mode), 7, seed, faults)
    BUSY.keep(net, random)
    give(net, 12, measured(1), 3, random)
    give(net, 30, measured(2, 20.0), 2, random)
    return net


def entries(net: Network) -> Iterator[ListEntry]:
    """All that lies anywhere."""
    for _, custody, _, _ in parts(net):
        for there in custody.entries.values():
            for placed in there.values():
                entry = read_entry(placed)
                assert entry is not None
                yield entry


def apart(net: Network) -> list[str]:
    """The invariant: all that serve go by the highest floor."""
    held = [scheme._epochs for scheme in schemes(net) if scheme._home_manager.homes]
    floor = max((each._floor for each in held), default=BASE.rank)
    return [f"{each._runtime.me.address} does not go by {floor}" for each in held if floor not in each._going_by()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "faults"), [("coordinated", "churn"), ("hybrid", "all"), ("distributed", "partition"), ("hybrid", "disk")]
)
def test_a_switch_under_faults_loses_nothing_and_all_end_with_one_version(mode: str, faults: str) -> None:
    net = switched(mode, faults, 3)
    Overseen(net, lambda: apart(net), every=7)
    observed = judge(net)
    assert observed["version_floor"] > 1
    ((body,),) = versions(net)
    assert set(read_cuts(body) or ()) == {"price", "size", "level"}
    hashing = next(schemes(net))._hashings.counting[0]
    assert {entry.scale for entry in entries(net) if entry.attribute == "price"} == {hashing.mark("price")}


# -- what the oracle must catch ----------------------------------------------------------------------------------------


def floor_too_early(patch: pytest.MonkeyPatch) -> None:
    """What lies by the old scales is taken away when the homes here are done, not when all are."""

    def step(self: ConfigEpochs) -> None:
        latest, homes = self._latest(), self._home_manager.homes.values()
        done = [self._progress.get(home.id) == self._progress_of(home, latest, Stage.DONE) for home in homes]
        if latest in self._opened and all(done):
            self._raise(latest)
            self._go_by()
        else:
            right(self)

    right = ConfigEpochs._step
    patch.setattr(ConfigEpochs, "_step", step)


def done_and_nothing_placed(patch: pytest.MonkeyPatch) -> None:
    """A home says that it is done without having done anything."""

    def place_all(self: Lists, home: Home) -> Signal[None]:
        return DONE

    patch.setattr(Lists, "place_all", place_all)


def asks_only_by_the_new(patch: pytest.MonkeyPatch) -> None:
    """An event asks by the latest scales as soon as they are open."""

    def groups(
        hashing: Hashing, event: FlatEvent, order: AttributeOrder, others: Sequence[Hashing] = ()
    ) -> list[Group]:
        return groups_of([hashing, *others][-1], event, order)

    patch.setattr(scheme, "groups_of", groups)


def goes_along_by_another_scale(patch: pytest.MonkeyPatch) -> None:
    """A range is passed on to nodes that have values of it by the scale of the beginning."""

    def next_key(self: Lists, entry: Placed, after: bytes) -> bytes | None:
        read = read_entry(entry)
        assert read is not None
        return next_point(self._hashings.base, msgspec.structs.replace(read, scale=b""), after)

    patch.setattr(Lists, "next_key", next_key)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "seed"),
    [
        (floor_too_early, 2),
        (done_and_nothing_placed, 2),
        (asks_only_by_the_new, 2),
        (goes_along_by_another_scale, 1),
    ],
)
def test_the_oracle_sees(
    mutant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    net = switched("coordinated", "none", seed)
    net.run()
    assert any("never came" in problem for problem in net.report().problems)


# -- a broker that is late, or old -------------------------------------------------------------------------------------


def late(patch: pytest.MonkeyPatch, until_s: float) -> Network:
    """A network in which one broker hears nothing more of the new scales for a while, once it knows them."""
    random = Random(5)
    net = network(config(), 6, 4, timing=Timing(calm_s=60, quiet_s=60))
    begin = net.engine.now
    right = ConfigEpochs.learn

    def learn(self: ConfigEpochs, data: bytes) -> None:
        deaf = self._runtime.me.address == "n1" and self.is_changing
        if not deaf or net.engine.now > begin + until_s * SECOND_US:
            right(self, data)

    patch.setattr(ConfigEpochs, "learn", learn)
    BUSY.keep(net, random)
    give(net, 14, measured(1), 1, random)
    return net


@pytest.mark.slow
def test_what_a_late_broker_publishes_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    net = late(monkeypatch, 75)
    Overseen(net, lambda: apart(net), every=7)
    judge(net)
    assert [len(bodies) for bodies in versions(net)] == [1]


@pytest.mark.slow
def test_the_oracle_sees_that_a_late_broker_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_the_new(self: Lists, home: HomeId, number: int, filter_: Filter, at: int) -> list[Placed]:
        self._hashings.counting, kept = self._hashings.counting[-1:], self._hashings.counting
        made = right(self, home, number, filter_, at)
        self._hashings.counting = kept
        return made

    right = Lists._entries
    monkeypatch.setattr(Lists, "_entries", by_the_new)  # as soon as there are new scales, nothing lies by the old ones
    net = late(monkeypatch, 75)
    net.run()
    assert any("never came" in problem for problem in net.report().problems)


def of_an_old_release(patch: pytest.MonkeyPatch, address: str) -> None:
    """Nodes at an address compare what nodes compared before there were versions."""
    right = Lists.__init__

    def make(self: Lists, runtime: Runtime, overlay: Overlay, hosting: HomeManager, *others: Any) -> None:
        right(self, runtime, overlay, hosting, *others)
        if runtime.me.address == address:
            hosting.directory.payload = None

    patch.setattr(Lists, "__init__", make)


@pytest.mark.slow
def test_nothing_changes_while_a_broker_is_of_an_old_release(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(6)
    with monkeypatch.context() as patch:
        of_an_old_release(patch, "n2")
        net = network(config(), 5, 2)
        BUSY.keep(net, random)
        give(net, 10, measured(1), 2, random)
        observed = judge(net)
        assert "version_proposed" not in observed
    (process,) = [each for each in net.cluster.processes if each.address == "n2"]
    net.cluster.crash(process)
    net.cluster.restart(process)  # upgraded
    net.engine.run(net.engine.now + 60 * SECOND_US)
    assert [len(bodies) for bodies in versions(net)] == [1]
    assert next(schemes(net))._hashings.counting[0].mark("price")


def test_a_broker_of_an_old_release_does_not_come_in_once_scales_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(6)
    net = network(config(), 4, 2)
    BUSY.keep(net, random)
    give(net, 10, measured(1), 2, random)
    judge(net)
    of_an_old_release(monkeypatch, f"n{len(net.cluster.processes)}")
    process = net.cluster.join()
    net.engine.run(net.engine.now + 60 * SECOND_US)
    assert isinstance(process.node, Node)
    assert process.node.state == "starting"


@pytest.mark.slow
def test_a_network_that_begins_again_goes_by_what_it_went_by() -> None:
    random = Random(9)
    net = network(config(), 5, 7)
    BUSY.keep(net, random)
    give(net, 10, measured(1), 2, random)
    judge(net)
    before = versions(net)
    assert next(iter(before)) != (b"",)
    for process in net.cluster.processes:
        net.cluster.crash(process)
    for process in net.cluster.processes:
        net.cluster.restart(process)
    net.engine.run(net.engine.now + 60 * SECOND_US)
    assert len(list(schemes(net))) == 5
    assert versions(net) == before


def test_what_a_home_said_before_it_came_back_under_another_epoch_is_void() -> None:
    random = Random(9)
    net = network(config(), 4, 7)
    BUSY.keep(net, random)
    give(net, 10, measured(1), 2, random)
    judge(net)
    held = next(schemes(net))._epochs
    for entry in held._directory.entries():
        assert held._stage(entry, held._floor) is Stage.DONE
        later = msgspec.structs.replace(entry, epoch=entry.epoch + 1)
        assert held._stage(later, held._floor) is None


def test_the_same_file_again_is_no_news() -> None:
    random = Random(9)
    net = network(config(), 4, 7)
    BUSY.keep(net, random)
    for at_s in (10, 30, 50):
        give(net, at_s, measured(1), 4, random)
    assert judge(net)["version_floor"] <= 4, "a version has a floor once at each node, at most"
    assert {scheme._epochs._floor[0] for scheme in schemes(net)} == {1}


# -- what it is for ----------------------------------------------------------------------------------------------------


def loads(net: Network) -> list[int]:
    """How many entries lie at each broker."""
    return [sum(map(len, custody.entries.values())) for _, custody, _, _ in parts(net)]


@pytest.mark.slow
def test_entries_of_skewed_values_become_balanced() -> None:
    def run(give_it: bool) -> float:
        random = Random(1)
        net = network(config(), 12, 1)
        for _ in range(200):
            low = draw_price(random)
            net.subscribe(f"price BETWEEN {low} AND {round(low + 0.05, 2)}")
        for _ in range(20):
            net.publish(draw_event(random), phase="after")
        if give_it:
            give(net, 15, measured(1), 12, random)
        judge(net)
        return max(loads(net)) / (sum(loads(net)) / 12)

    before, after = run(False), run(True)
    assert before > 6
    assert after < before / 2


def test_an_update_back_and_forth_leaves_what_is_wanted() -> None:
    """What was left, and is wanted again before it is taken away, lies there twice for a while; then once."""
    net = network(config(), 5, 3)
    name = net.subscribe("price BETWEEN 1 AND 2")
    net.update(name, "price BETWEEN 5 AND 6")
    net.update(name, "price BETWEEN 1 AND 2")
    net.rest(40)
    for _ in range(3):
        net.publish({"price": 1.5}, phase="after")
    judge(net)


def test_a_scale_is_exchanged_only_where_that_is_worth_it() -> None:
    hashings = HashingVersions(Ring(), Schema.from_yaml(SCHEMA), {}, order_preserving=True)
    skewed = measured(1).cuts(PARTS)
    body = hashings.improved(b"", skewed)
    assert body is not None
    assert set(read_cuts(body) or ()) == {"price", "size", "level"}
    assert hashings.improved(body, skewed) is None
    assert hashings.improved(body, measured(2).cuts(PARTS)) is None, "much the same values"
    even = {"price": MeasuredQuantiles(Kind.NUMBER, tuple(map(float, range(1, 1000, 8))))}
    assert hashings.improved(b"", even) is None
    same = {"price": MeasuredQuantiles(Kind.NUMBER, (7.0,) * 100)}
    assert hashings.improved(b"", same) is None, "one value is one key, by any scale"
    back = hashings.improved(body, even)
    assert back is not None
    assert (read_cuts(back) or {})["size"] == (read_cuts(body) or {})["size"], "what need not change stays"


@pytest.mark.parametrize(
    "cuts", [[("a", ())], [("a", (math.inf,))], [("a", (1.0,) * 500)], [(f"a{n}", (1.0,)) for n in range(99)], 7, "x"]
)
def test_what_says_no_scales_is_not_taken(cuts: object) -> None:
    body = msgspec.msgpack.encode(cuts)
    assert read_cuts(body) is None
    net = network(config(), 2, 1)
    net.subscribe("price = 1")
    net.run()
    scheme = next(schemes(net))
    scheme._runtime.begin(Instant(net.engine.now))
    told = msgspec.msgpack.encode(((((1, body)),), (), ()))
    scheme._epochs.learn(told)
    scheme._epochs.learn(b"\x93")
    assert scheme._epochs.known == (b"",)
