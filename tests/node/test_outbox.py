"""Events on their way, against a plain set; and signals for when they are fully acknowledged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.node.home.outbox import Outbox
from meetpoint.node.runtime.flow import Signal

HOME = HomeId(b"h")


def key(number: int, stream: int = 1) -> EventKey:
    return EventKey(HOME, stream, number)


@given(st.lists(st.one_of(st.just(0), st.integers(1, 12), st.integers(-12, -1))), st.integers(0, 5))
def test_what_is_pending_is_what_was_put_and_not_acknowledged(steps: list[int], first: int) -> None:
    """0: publish the next; a number: settle it; a negative one: wait for all below."""
    outbox, last, model = Outbox(HOME), first, set[int]()
    waiting: dict[Signal[None], tuple[int, list[bool]]] = {}
    for step in steps:
        if step == 0:
            last += 1
            outbox.put(key(last), b"")
            model.add(last)
        elif step > 0:
            number = first + step
            assert outbox.acknowledge(key(number)) == (number in model)
            model.discard(number)
        elif model and min(model) < first - step:
            rung: list[bool] = []
            signal = outbox.acknowledged_below(1, first - step)
            signal.then(lambda _, rung=rung: rung.append(True))  # type: ignore[misc]
            waiting[signal] = (first - step, rung)
        below = first + 5
        assert outbox.pending(1, below, 100) == (sorted(model), max(below, last + 1) if last > first else below)
        some, reached = outbox.pending(1, below, 2)
        assert some == sorted(number for number in model if number < reached)
        assert len(some) == min(2, len(model))
        later, _ = outbox.pending(1, below, 100, first + 3)
        assert later == sorted(number for number in model if number > first + 3)
        for number, rung in waiting.values():
            assert bool(rung) == (not any(each < number for each in model) or bool(rung))
        outbox.check()
        assert sorted(outbox) == [key(number) for number in sorted(model)]
        if last > first:
            assert outbox.floor(1) == min(model, default=last + 1) - 1


def test_what_comes_back_from_disk_leaves_out_what_was_settled() -> None:
    outbox = Outbox(HOME)
    outbox.recover({key(number): b"" for number in (9, 4, 10)} | {key(2, stream=7): b""})
    assert outbox.pending(1, 1, 100) == ([4, 9, 10], 11)
    assert outbox.pending(7, 3, 100) == ([2], 3)
    assert outbox.pending(5, 3, 100) == ([], 3)
    assert (outbox.floor(1), outbox.floor(7), outbox.floor(5)) == (3, 1, 0)
    outbox.put(key(11), b"")
    outbox.acknowledge(key(4))
    assert outbox.floor(1) == 8
    assert list(outbox) == [key(9), key(10), key(2, stream=7), key(11)]


def test_what_was_settled_above_all_that_comes_back_is_not_waited_for() -> None:
    outbox = Outbox(HOME)
    outbox.recover({key(4): b""})
    outbox.put(key(8), b"")  # 5, 6 and 7 were published and settled before the restart
    assert outbox.pending(1, 1, 100) == ([4, 8], 9)
    outbox.acknowledge(key(4))
    assert outbox.floor(1) == 7
    outbox.check()


def test_a_number_that_nobody_will_ever_reach_costs_nothing() -> None:
    outbox = Outbox(HOME)
    outbox.put(key(1), b"")
    assert outbox.pending(1, 1 << 62, 100) == ([1], 1 << 62)


def test_who_stops_waiting_is_not_told() -> None:
    outbox, told = Outbox(HOME), list[int]()
    outbox.put(key(1), b"")
    outbox.put(key(2), b"")
    gone = outbox.acknowledged_below(1, 2)
    gone.then(lambda _: told.append(1))
    outbox.acknowledged_below(1, 3).then(lambda _: told.append(2))
    outbox.stop_waiting(gone)
    outbox.acknowledge(key(1))
    assert told == []
    outbox.acknowledge(key(2))
    assert told == [2]
