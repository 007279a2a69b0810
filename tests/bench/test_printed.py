"""The papers as printed, as a model: hops, bytes, and what is wrong, each against what is known otherwise."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from benchmarks.printed import PrintedModel
from benchmarks.rings import IdealRing, hashed, spaced
from meetpoint.language.filters import parse_filter
from meetpoint.language.schema import Schema
from meetpoint.protocol.messages import Peer
from meetpoint.protocol.ring import NodeId, Ring
from meetpoint.schemes.lists.collecting import AttributeOrder, Mode
from tests.overlays.chord.test_hops import Still

SCHEMA = Schema.from_yaml("attributes: {a: string, b: string}")


@pytest.mark.parametrize(
    ("ring", "nodes"),
    [
        (Ring(), hashed(Ring(), 48, 5)),
        (Ring(), spaced(Ring(), 32)),
        (Ring(5), [Ring(5).node(number) for number in (1, 4, 5, 6, 20, 31)]),
        (Ring(), hashed(Ring(), 2, 5)),
        (Ring(), hashed(Ring(), 1, 5)),
    ],
    ids=["hashed", "spaced", "small", "two", "one"],
)
def test_hops_are_those_of_nodes(ring: Ring, nodes: Sequence[NodeId]) -> None:
    """Every key, the ids of nodes among them, from some nodes: as far as messages between real nodes go."""
    ideal = IdealRing(ring, nodes)
    still = Still(ring, [Peer(node, "somewhere") for node in nodes])
    chance = random.Random(1)
    keys = [*ideal.nodes, *(ring.key(chance.getrandbits(ring.bits)) for _ in range(60))]
    for source in chance.sample(range(len(nodes)), min(4, len(nodes))):
        for key in keys:
            owner, hops = still.lookup(ideal.nodes[source], key)
            assert (ideal.nodes[ideal.owner(key)], ideal.hops(source, key)) == (owner.id, hops)


def model(mode: Mode, *filters: str, nodes: int = 64) -> PrintedModel:
    return PrintedModel(nodes, 7, mode, SCHEMA, AttributeOrder(SCHEMA, ["a", "b"]), map(parse_filter, filters))


@pytest.mark.parametrize("mode", Mode)
def test_what_is_found_is_compared_with_the_oracle(mode: Mode) -> None:
    made = model(mode, "a LIKE 'N%E'", "a = 'NASDAQ'", "a LIKE 'NAS%'", "a LIKE '%'")
    made.publish({"a": "NASDAQ"}, [1, 2, 3])
    assert (made.found.missing, made.found.spurious) == (1, 1), "* alone is never found, and half an affix counts"


def test_distributed_takes_subids_along_that_the_event_cannot_satisfy() -> None:
    filters = ("a = 'x' AND b = 'y'", "a = 'x'")
    for mode, spurious in ((Mode.COORDINATED, 0), (Mode.DISTRIBUTED, 1), (Mode.HYBRID, 1)):
        made = model(mode, *filters)
        made.publish({"a": "x"}, [1])
        assert (made.found.missing, made.found.spurious) == (0, spurious)


@pytest.mark.parametrize("mode", Mode)
def test_messages_are_counted_at_each_hop_and_answers_once(mode: Mode) -> None:
    made = model(mode, "a = 'xy' AND b = 'z'", nodes=128)
    for _ in range(50):
        made.publish({"a": "xy", "b": "z"}, [0])
    kinds = made.found.kinds
    asked, answers = kinds["collect"], kinds["collected"]
    lookups = (1 + 2 * 2) + (1 + 2 * 1)
    assert answers.messages <= 50 * lookups, "one for each lookup, but where a node asks itself"
    assert 3 < asked.messages / answers.messages < 6, "½ log2 N and the last step"
    assert 100 < asked.bytes / asked.messages < 200
    if mode is Mode.COORDINATED:
        assert set(kinds) == {"collect", "collected", "carry"}
        assert made.found.subids == pytest.approx(50 * 3, abs=6), "one under each attribute, and one to its home"
    else:
        assert set(kinds) == {"collect", "collected", "chain", "told", "carry"}
        # The nodes of xy and z find it themselves: it is passed on, told and delivered.
        assert made.found.subids == pytest.approx(50 * 3, abs=6)
        assert kinds["told"].messages <= 50 * (2 if mode is Mode.HYBRID else 1)
    assert made.found.delivered_subids <= 50
    assert made.found.missing == made.found.spurious == made.found.walks == 0


def test_an_event_for_many_goes_round_the_ring() -> None:
    made = model(Mode.COORDINATED, *["a = 'x'"] * 30, nodes=8)
    made.publish({"a": "x"}, range(30))
    assert made.found.walks == 1
    assert made.found.kinds["carry"].messages == 7
    assert made.found.delivered_subids == 30 * 7, "the whole list at each hop"
