"""Dead letters of several names: each with its own reason, forgotten name by name; and what is dead at once."""

from __future__ import annotations

import msgspec

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.outcomes import Stored
from meetpoint.api.requests import Forget, Reject, Subscribe, SubscriptionOptions, Unsubscribe
from meetpoint.node.home.dead_letters import DeadLetters, DeadRecord
from tests.node.world import World

KEY = EventKey(HomeId(b"h"), 1, 1)


def dead() -> DeadLetters:
    letters = DeadLetters(10, 1_000)
    for name, reason in (("a/1", "hot"), ("b/1", "cold"), ("a/2", "hot"), ("b/2", "old")):
        letters.put(KEY, name, b"content", reason, 5)
    return letters


def told(letters: DeadLetters, within: str = "") -> list[tuple[tuple[str, ...], str]]:
    return [(letter.names, letter.reason) for letter in letters.letters(within)]


def test_each_name_is_told_its_own_reason() -> None:
    letters = dead()
    assert told(letters) == [(("a/1", "b/1", "a/2", "b/2"), "hot; b/1: cold; b/2: old")]
    assert told(letters, "a/") == [(("a/1", "a/2"), "hot")]
    assert told(letters, "b/") == [(("b/1", "b/2"), "cold; b/2: old")]
    assert told(letters, "c/") == []


def test_a_letter_goes_with_the_last_of_its_names() -> None:
    letters = dead()
    assert not letters.forget(KEY, "c/")
    assert letters.forget(KEY, "a/")
    assert told(letters) == [(("b/1", "b/2"), "cold; b/2: old")]
    assert letters.forget(KEY, "b/1")
    assert told(letters) == [(("b/2",), "old")]
    assert letters.forget(KEY, "b/")
    assert len(letters) == 0
    assert letters.record(KEY) is None
    assert not letters.forget(KEY)


def test_reasons_come_back_from_disk_also_of_a_record_from_before() -> None:
    kept = dead().record(KEY)
    assert kept is not None
    again = DeadLetters(10, 1_000)
    again.recover(KEY, msgspec.msgpack.decode(kept, type=DeadRecord))
    assert told(again, "b/") == told(dead(), "b/")
    old = DeadLetters(10, 1_000)
    old.recover(KEY, msgspec.msgpack.decode(msgspec.msgpack.encode((("s", "t"), b"c", "why", 5)), type=DeadRecord))
    old.put(KEY, "u", b"c", "late", 6)
    assert told(old) == [(("s", "t", "u"), "why; u: late")]
    assert told(old, "t") == [(("t",), "why")]


def test_what_is_rejected_for_good_is_dead_at_once_and_the_next_comes() -> None:
    world = World(3)
    world.run(1)
    for name in ("a/s", "b/s"):
        asked = world.ask(1, Subscribe(name, "price > 1"))
        world.run(2)
        assert world.answers[asked] == Stored()
    world.acknowledges = False
    world.publish(2, "e", price=3)
    world.run(1)
    world.ask(1, Reject(world.keys["e"], ("a/s",), "never", final=True))
    world.run(1)
    node = world.nodes[1]
    (letter,) = node.dead_letters()
    assert (letter.names, letter.reason) == (("a/s",), "never")
    world.ask(1, Reject(world.keys["e"], ("b/s",), "never ever", final=True))
    world.run(1)
    assert [letter.reason for letter in node.dead_letters(within="b/")] == ["never ever"]
    assert node.snapshot().queued == 0
    world.ask(1, Forget(world.keys["e"], "a/"))
    world.run(3)
    assert [letter.names for letter in node.dead_letters()] == [("b/s",)]
    world.crash(1)
    world.start(1, contacts=[2])
    world.run(20)
    assert [letter.names for letter in world.nodes[1].dead_letters()] == [("b/s",)]


def test_a_node_knows_how_many_subscriptions_an_owner_has() -> None:
    world = World(1)
    world.run(1)
    for number in range(4):
        world.ask(1, Subscribe(f"s{number}", "price > 1", SubscriptionOptions(owner="ann" if number else "bob")))
    world.ask(1, Subscribe("s1", "price > 1", SubscriptionOptions(owner="bob")))  # asked again, of another
    world.run(2)
    node = world.nodes[1]
    assert (node.owned_subscriptions("ann"), node.owned_subscriptions("bob")) == (2, 2)
    world.ask(1, Unsubscribe("s2"))
    world.run(2)
    assert (node.owned_subscriptions("ann"), node.owned_subscriptions("bob")) == (1, 2)
    node.check()
