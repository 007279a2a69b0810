"""Filters never cost a match, and what is wanted no longer is forgotten: paper E, sections 4.2, 4.4, 5.2, corrected."""

from __future__ import annotations

import random
from typing import cast

import pytest

from meetpoint.language import parse_filter
from meetpoint.schemes.rebeca import edges
from meetpoint.schemes.rebeca.edges import EdgeAck, EdgeQuery, Edges, EdgeState, Outgoing, _Edge, _FilterLease
from meetpoint.schemes.rebeca.graph import Range
from meetpoint.schemes.rebeca.invariant import is_superset
from meetpoint.schemes.rebeca.tables import ALL, STRATEGIES, Rows, Sample, Strategy, make_table
from tests.schemes.rebeca.networks import LEASE_US, SIZE, Network, live, text_of
from tests.schemes.rebeca.rings import even, hashed
from tests.tiers import SOAK

SEEDS = range(200 if SOAK else 25)
STEPS = 150
EVENTS = [{"a": value} for value in range(20)]


def rows(text: str) -> Rows:
    return parse_filter(text).conjunctions


ONE, TWO, WIDE = rows("a = 1"), rows("a = 2"), rows("a BETWEEN 0 AND 9")

# -- one node: 20 on a circle of 64, whose keys begin at 16; edges lead to 30 and 50 -----------------------------------


def node(kind: type[Edges] = Edges, now: int = 0, owed_us: int = 0) -> Edges:
    made = kind(64, 20, lambda: make_table("covering"), 1000, now, owed_us)
    made.relink(Range(16, 5), {30: 21, 50: 31}, now)
    return made


def states(said: Outgoing, to: int) -> list[EdgeState]:
    return [message for each, message in said if each == to and isinstance(message, EdgeState)]


def known(made: Edges, good_us: int = 1000, now: int = 0) -> Edges:
    """Both edges have told that nothing is wanted there."""
    made.heard(30, EdgeState(1, Range(21, 10), (), now, good_us), now)
    made.heard(50, EdgeState(1, Range(31, 49), (), now, good_us), now)
    return made


def asked(made: Edges, source: int, range_: Range, now: int = 0) -> EdgeState:
    """What a node answers to one whose edge leads here, which knows it from then on."""
    [state] = states(made.heard(source, EdgeQuery(range_, now), now), source)
    made.heard(source, EdgeAck(state.number), now)
    return state


def test_a_new_edge_accepts_everything_until_its_filter_comes() -> None:
    made = node()
    assert made.rows(30, 0) == ALL
    made.heard(30, EdgeState(1, Range(21, 10), ONE, 0, 1000), 0)
    assert made.rows(30, 0) == ONE
    assert made.rows(50, 0) == ALL


def test_a_filter_is_good_for_its_time_from_the_question_on() -> None:
    made = node()
    made.heard(30, EdgeState(1, Range(21, 10), ONE, 0, 1000), 600)
    assert made.rows(30, 999) == ONE
    assert made.rows(30, 1000) == ALL


def test_an_edge_that_answers_for_more_than_it_has_told_accepts_everything() -> None:
    made = known(node())
    made.relink(Range(16, 5), {30: 21}, 10)
    assert made.graph.responsible[30] == Range(21, 59)
    assert made.rows(30, 10) == ALL


def test_what_is_told_is_what_is_wanted_here_and_behind_the_edges_of_the_range() -> None:
    made = known(node())
    made.want("s", ONE, 0)
    made.heard(30, EdgeState(2, Range(21, 10), TWO, 0, 1000), 0)
    made.heard(50, EdgeState(2, Range(31, 49), rows("a = 3"), 0, 1000), 0)
    assert asked(made, 0, Range(16, 15)) == EdgeState(made._number, Range(16, 15), ONE + TWO, 0, 1000, True)
    assert asked(made, 50, Range(16, 16)).rows == ONE + TWO + rows("a = 3"), "one key further"


def test_what_is_not_known_is_wanted() -> None:
    made = node()
    assert asked(made, 0, Range(16, 5)).rows == (), "what lies here only"
    made.relink(Range(16, 5), {30: 25}, 0)
    assert asked(made, 10, Range(16, 7)).rows == ALL, "no edge leads to what lies between"
    known(made)
    assert made.rows(30, 0) == ALL


def test_nothing_rests_on_itself() -> None:
    made = known(node())
    assert asked(made, 19, Range(16, 15)).rows == ALL, "an edge of a lower level than the one to 30"
    assert asked(made, 0, Range(16, 15)).rows == ()


def test_what_is_told_is_good_as_long_as_what_it_rests_on() -> None:
    made = known(node(), good_us=400)
    assert asked(made, 0, Range(16, 15), 100).good_us == 300
    assert asked(made, 10, Range(16, 5), 100).good_us == 1000, "rests on nothing"
    late = asked(made, 50, Range(16, 15), 390)
    assert (late.rows, late.good_us) == (ALL, 1000), "too short to rest on"


def test_what_was_told_never_rests_on_what_ends_sooner() -> None:
    made = known(node())
    assert asked(made, 0, Range(16, 15)) == EdgeState(made._number, Range(16, 15), (), 0, 1000, True)
    made.relink(Range(16, 5), {28: 21, 50: 31}, 10)
    [open_] = states(made.heard(28, EdgeState(1, Range(21, 10), (), 10, 500), 20), 0) or states(made.again(20), 0)
    assert open_.rows == ALL, "good until 1000, where the new edge's is until 510"
    [closed] = states(made.heard(28, EdgeState(1, Range(21, 10), (), 300, 1000), 300), 0)
    assert closed.rows == ()


def test_who_asks_for_less_is_told_of_more_as_long_as_that_is_good() -> None:
    made = known(node())
    asked(made, 52, Range(16, 30))
    known(made, now=500)
    assert asked(made, 52, Range(16, 15), 600).range == Range(16, 30), "those above it may rest on that"
    [state] = states(made.heard(50, EdgeState(2, Range(31, 49), ONE, 500, 1000), 700), 52)
    assert state.rows == ONE
    assert asked(made, 52, Range(16, 15), 1124).range == Range(16, 30), "clocks differ"
    assert asked(made, 52, Range(16, 15), 1125).range == Range(16, 15)


def test_a_state_that_comes_late_or_answers_an_older_edge_counts_for_nothing() -> None:
    made = known(node())
    made.heard(30, EdgeState(3, Range(21, 10), ONE, 0, 1000), 0)
    made.heard(30, EdgeState(2, Range(21, 10), (), 0, 1000), 0)
    assert made.rows(30, 0) == ONE
    made.relink(Range(16, 5), {50: 31}, 10)
    made.relink(Range(16, 5), {30: 21, 50: 31}, 20)
    made.heard(30, EdgeState(3, Range(21, 10), ONE, 0, 1000), 20)
    assert made.rows(30, 20) == ALL
    made.heard(30, EdgeState(3, Range(21, 10), ONE, 20, 1000), 20)
    assert made.rows(30, 20) == ONE


def test_an_update_stops_where_the_filter_covers_it_and_goes_on_where_it_does_not() -> None:
    made = known(node())
    made.heard(30, EdgeState(2, Range(21, 10), WIDE, 0, 1000), 0)
    asked(made, 0, Range(16, 15))
    assert made.want("s", ONE, 0) == []
    assert made.is_safe("s")
    [state] = states(made.want("t", rows("a > 5"), 0), 0)
    assert state.rows == (*WIDE, *rows("a > 5"))
    assert not made.is_safe("t")


def test_the_end_of_a_covering_filter_brings_back_what_it_covered_in_the_same_state() -> None:
    made = known(node())
    made.want("s", ONE, 0)
    made.heard(30, EdgeState(2, Range(21, 10), WIDE, 0, 1000), 0)
    assert asked(made, 0, Range(16, 15)).rows == WIDE
    [state] = states(made.heard(30, EdgeState(3, Range(21, 10), TWO, 0, 1000), 0), 0)
    assert state.rows == ONE + TWO


def test_a_subscription_is_safe_when_all_who_were_told_know_or_their_time_is_over() -> None:
    made = known(node())
    asked(made, 0, Range(16, 15))
    asked(made, 4, Range(16, 15), 500)
    [state] = states(said := made.want("s", ONE, 500), 0)
    assert len(said) == 2
    made.heard(0, EdgeAck(state.number - 1), 500)
    assert not made.is_safe("s")
    made.heard(0, EdgeAck(state.number), 500)
    assert not made.is_safe("s")
    made.again(1061)
    assert not made.is_safe("s")
    made.again(1062)  # what was told to 4 rested on what was good until 1000: for 500, and an eighth more
    assert made.is_safe("s")


def test_who_has_not_acknowledged_is_told_for_no_longer() -> None:
    made = known(node())
    asked(made, 0, Range(16, 15))
    made.want("s", ONE, 100)
    known(made, now=500)
    [state] = states(made.heard(0, EdgeQuery(Range(16, 15), 600), 600), 0)
    assert (state.rows, state.at, state.good_us) == (ONE, 600, 0)
    made.again(1125)
    assert made.is_safe("s")


def test_a_state_is_acknowledged_when_it_is_known_further_up() -> None:
    made = known(node())
    asked(made, 0, Range(16, 15))
    asked(made, 10, Range(16, 5))
    said = made.heard(30, EdgeState(2, Range(21, 10), ONE, 0, 1000, True), 0)
    [(to, state)] = said
    assert to == 0, "what was told to 10 does not reach so far"
    assert isinstance(state, EdgeState)
    assert made.heard(0, EdgeAck(state.number), 0) == [(30, EdgeAck(2))]
    assert made.heard(30, EdgeState(2, Range(21, 10), ONE, 0, 1000, True), 0) == [(30, EdgeAck(2))], (
        "its answer was lost"
    )


def test_who_begins_anew_acknowledges_nothing_until_all_that_it_may_have_told_is_over() -> None:
    made = node(owed_us=640)
    made.want("s", ONE, 0)
    assert not made.is_safe("s")
    assert made.heard(30, EdgeState(2, Range(21, 10), ONE, 0, 1000, True), 100) == []
    assert made.owed_us(100) == 620, "nor does who gets keys from it"
    assert (30, EdgeAck(2)) in made.again(720)
    assert made.is_safe("s")


def test_what_is_known_is_not_told_again_but_good_for_longer() -> None:
    made = known(node())
    made.want("s", ONE, 0)
    first = asked(made, 0, Range(16, 5))
    [(_, again)] = made.heard(0, EdgeQuery(Range(16, 5), 400, first.number), 400)
    assert again == EdgeState(first.number, Range(16, 5), None, 400, 1000)
    [(_, whole)] = made.heard(0, EdgeQuery(Range(16, 5), 500, first.number - 1), 500)
    assert whole == EdgeState(first.number, Range(16, 5), ONE, 500, 1000)
    made.heard(30, EdgeState(1, Range(21, 10), None, 500, 1000), 500)
    assert made.rows(30, 1400) == ()
    made.heard(50, EdgeState(2, Range(31, 49), None, 500, 1000), 500)
    assert made.rows(50, 1400) == ALL, "what that is about has not come"


def test_a_node_that_refuses_says_nothing_of_what_is_known() -> None:
    made = known(node())
    made.heard(30, EdgeState(7, Range(21, 0), ALL, 0, 0), 0)
    assert made.rows(30, 0) == ()
    assert (30, EdgeQuery(Range(21, 10), 0, 1)) in made.ask_new(0), (
        "else it would take what was told meanwhile for known"
    )


def test_a_new_edge_is_asked_when_it_may_be_and_again_from_then_on() -> None:
    made = node()
    assert not [each for each in made.again(0) if isinstance(each[1], EdgeQuery)], "it may not yet know all its edges"
    asks = made.ask_new(0)
    assert [to for to, _ in asks] == list(made.graph.nodes)
    assert not made.ask_new(1)
    assert [to for to, _ in made.again(2)] == list(made.graph.nodes)
    made.begin_anew(30, 3)
    assert [to for to, _ in made.ask_new(4)] == [30]


def test_where_the_keys_of_another_begin_is_learnt_from_it() -> None:
    made = known(node())
    made.heard(50, EdgeState(2, Range(40, 40), (), 0, 1000), 0)
    assert made.graph.responsible == {30: Range(21, 19), 50: Range(40, 40)}
    assert made.rows(30, 0) == ALL, "it answers for more than it has told"
    [(_, refused)] = made.heard(10, EdgeQuery(Range(30, 10), 5), 5)
    assert refused == EdgeState(made._number, Range(16, 0), ALL, 5, 0)


def test_what_makes_no_sense_is_not_heard() -> None:
    made = known(node())
    said = [
        made.heard(30, EdgeState(9, Range(21, 65), ONE, 0, 1000), 0),
        made.heard(30, EdgeState(9, Range(64, 1), ONE, 0, 1000), 0),
        made.heard(30, EdgeState(9, Range(21, 10), ONE, 1, 1000), 0),
        made.heard(30, EdgeState(9, Range(21, 10), ONE, 0, 1001), 0),
        made.heard(0, EdgeQuery(Range(-1, 5), 0), 0),
        made.heard(5, EdgeAck(7), 0),
    ]
    assert said == [[]] * 6
    assert made.rows(30, 0) == ()
    asked(made, 0, Range(16, 15))
    made.heard(0, EdgeAck(10**9), 0)
    made.want("s", ONE, 0)
    assert not made.is_safe("s"), "nobody knows what has not been told"


def test_tables_of_a_node_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "GRANTED_MAX", 1)
    monkeypatch.setattr(edges, "ENDS_MAX", 1)
    made = known(node())
    assert asked(made, 0, Range(16, 15)).range == Range(16, 15)
    assert asked(made, 10, Range(16, 15)).good_us == 0, "it goes on sending everything"
    assert made.heard(0, EdgeQuery(Range(16, 5), 1), 1) == []
    assert asked(made, 10, Range(16, 5), 1125).good_us == 1000, "the time of the other is over"


# -- quiet networks ----------------------------------------------------------------------------------------------------


def settled(count: int, seed: int, kind: type[Network] = Network, strategy: Strategy = "covering") -> Network:
    network = kind(hashed(count, seed, size=SIZE), lambda: make_table(strategy, Sample(EVENTS)))
    network.settle()
    return network


class Skips(Edges):
    """Mutant: one update of each node is not sent."""

    skipped = False

    def _refresh(self, now: int) -> Outgoing:
        said = super()._refresh(now)
        if said and self._here and not self.skipped:
            self.skipped = True
            to, state = said.pop()
            self._leases.granted[to].acked = cast(EdgeState, state).number
        return said


class Empties(Edges):
    """Mutant: the range of one whose edge leads here is taken for empty but for this node."""

    def _fill(self, grant: _FilterLease, source: int, range_: Range, now: int) -> None:
        super()._fill(grant, source, Range(range_.begin, self.graph.own.length), now)


class Keeps(Edges):
    """Mutant: a filter that is there stays, whatever comes."""

    def _take_state(self, source: int, state: EdgeState, now: int) -> Outgoing:
        edge = self._edges.get(source)
        if edge is not None and edge.rows != ALL:
            state = state._replace(rows=edge.rows)
        return super()._take_state(source, state, now)


class Printed(Edges):
    """As printed: a filter that covers the one that comes stays."""

    def _take_state(self, source: int, state: EdgeState, now: int) -> Outgoing:
        edge = self._edges.get(source)
        if edge is not None and edge.rows != ALL and is_superset(edge.rows, state.rows or ()):
            state = state._replace(rows=edge.rows)
        return super()._take_state(source, state, now)


def changes(network: Network, seed: int, count: int = 25) -> str | None:
    """Subscriptions come, change and go; what is wrong when all has arrived, or None."""
    rng = random.Random(seed)
    for _ in range(count):
        place = rng.choice(sorted(network.homes))
        names = sorted(network.homes[place])
        if names and rng.random() < 0.4:
            network.unsubscribe(place, rng.choice(names))
        else:
            network.subscribe(place, text_of(rng), rng.choice(names) if names and rng.random() < 0.3 else None)
        network.deliver()
        said = network.wrong() or network.not_kept()
        if said is not None:
            return said
    return network.lost(EVENTS, network.nodes)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(2))
def test_the_invariant_holds_after_every_update(seed: int, strategy: Strategy) -> None:
    network = settled(9, seed, strategy=strategy)
    assert changes(network, seed) is None
    assert all(each.is_safe for wanted in network.homes.values() for each in wanted.values())


@pytest.mark.parametrize(
    ("mutant", "said"),
    [(Skips, "lacks"), (Empties, "has not told"), (Keeps, "lacks")],
)
def test_the_checker_sees_what_is_wrong(mutant: type[Edges], said: str) -> None:
    class Mutated(Network):
        edges = mutant

    network = Mutated(hashed(9, 0, size=SIZE))
    network.settle()
    found = changes(network, 0)
    assert found is not None
    assert said in found


@pytest.mark.parametrize(("kind", "shrinks"), [(Edges, True), (Printed, False)])
def test_unsubscribing_shrinks_filters(kind: type[Edges], shrinks: bool) -> None:
    class Chosen(Network):
        edges = kind

    network = settled(8, 1, Chosen)
    place = sorted(network.homes)[3]
    name = network.subscribe(place, "a = 1")
    network.deliver()
    assert network.homes[place][name].is_safe
    for node in network.nodes.values():
        for edge in node.graph.nodes:
            if node.graph.responsible[edge].holds(place, SIZE):
                assert network.rows(node.place, edge) == ONE
    network.unsubscribe(place, name)
    network.deliver()
    left = [network.rows(node.place, edge) for node in network.nodes.values() for edge in node.graph.nodes]
    assert (not any(left)) == shrinks


def test_on_evenly_spaced_members_a_subscription_costs_one_update_for_each_other_member() -> None:
    network = Network(even(16, size=SIZE))
    network.settle()
    network.states = 0
    network.subscribe(sorted(network.homes)[5], "a = 1")
    network.deliver()
    assert network.states == 15, "along every tree in reverse, and so once for each root"
    network.subscribe(sorted(network.homes)[5], "a BETWEEN 1 AND 1 AND b = 2")
    network.deliver()
    assert network.states == 15, "covered: nobody hears of it"


def test_updates_and_rows_get_fewer_with_each_strategy_but_for_merging_which_only_saves_rows() -> None:
    rows_of, updates = [], []
    for strategy in STRATEGIES:
        network = settled(10, 4, strategy=strategy)
        network.states = 0
        rng = random.Random(4)
        for _ in range(40):
            network.subscribe(rng.choice(sorted(network.homes)), text_of(rng))
            network.deliver()
        updates.append(network.states)
        edges_ = [(place, edge) for place, node in network.nodes.items() for edge in node.graph.nodes]
        rows_of.append(sum(len(network.rows(*each)) for each in edges_))
    simple, identity, covering, merging, imperfect = rows_of
    assert simple > identity > covering > merging >= imperfect, rows_of
    assert updates[0] > updates[1] > updates[2], updates


# -- lives -------------------------------------------------------------------------------------------------------------


def begin(kind: type[Network], seed: int) -> Network:
    """A network of a few nodes, with one strategy or another."""
    rng = random.Random(1000 + seed)
    strategy = STRATEGIES[seed % len(STRATEGIES)]
    return kind(rng.sample(range(SIZE), rng.randint(2, 7)), lambda: make_table(strategy, Sample(EVENTS)))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_whatever_is_lost_late_or_doubled_and_whoever_comes_and_goes(seed: int) -> None:
    assert live(begin(Network, seed), seed, STEPS) is None


@pytest.mark.parametrize("seed", range(6))
def test_a_network_that_was_torn_comes_to_rest_with_exact_filters_and_forgets_what_nobody_wants(seed: int) -> None:
    network = begin(Network, seed)
    assert live(network, seed, STEPS) is None
    for place in network.homes:
        if place not in network.nodes:
            network.restart(place)
    network.settle()
    assert network.wrong() is None
    assert network.not_kept() is None
    for place in network.nodes:
        assert not network.walk(place, {"a": 3})[1], "nothing is left"
    assert network.lost(EVENTS, network.nodes) is None
    for place, wanted in network.homes.items():
        for name in list(wanted):
            network.unsubscribe(place, name)
    network.settle()
    assert not any(network.rows(node.place, edge) for node in network.nodes.values() for edge in node.graph.nodes)


class Hasty(Edges):
    """Mutant: acknowledged at once."""

    def is_safe(self, name: str) -> bool:
        return True


class Eager(Edges):
    """Mutant: acknowledged before those above know."""

    def _is_known_to(self, unaware: object, now: int) -> bool:
        return True


class Unready(Edges):
    """Mutant: who begins anew, or gets another's keys, does not wait."""

    @property
    def ready_at(self) -> int:
        return 0


class Stale(Edges):
    """Mutant: a filter counts for whatever an edge answers for."""

    def _is_known(self, node: int, edge: _Edge, now: int) -> bool:
        return edge.until > now


class Forever(Edges):
    """Mutant: a filter is good for ever."""

    def _is_known(self, node: int, edge: _Edge, now: int) -> bool:
        return super()._is_known(node, edge, min(now, edge.until - 1))


class Late(Edges):
    """Mutant: what comes late counts too."""

    def _take_state(self, source: int, state: EdgeState, now: int) -> Outgoing:
        if source in self._edges:
            self._edges[source].number = -1
        return super()._take_state(source, state, now)


class Closed(Edges):
    """Mutant: a new edge accepts nothing."""

    def rows(self, node: int, now: int) -> Rows:
        return () if self._edges[node].number < 0 else super().rows(node, now)


@pytest.mark.parametrize("mutant", [Hasty, Eager, Unready, Stale, Forever, Late, Closed, Skips])
def test_the_machine_sees_what_is_wrong(mutant: type[Edges]) -> None:
    class Mutated(Network):
        edges = mutant

    found = (live(begin(Mutated, seed), seed, STEPS) for seed in range(40))
    assert any(said is not None for said in found)


def test_waiting_ends_within_a_lease_whoever_is_silent() -> None:
    network = settled(6, 3)
    first, second, *_ = sorted(network.homes)
    network.crash(first)
    name = network.subscribe(second, "a = 1")
    for _ in range(40):
        if network.homes[second][name].is_safe:
            break
        for place in network.nodes:
            network.repeat(place)
        network.deliver()
        network.wait(LEASE_US // 32)
    assert network.homes[second][name].is_safe
    assert network.wrong() is None
