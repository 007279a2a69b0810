"""What is done with matches: grouped by event, each once, without those of subscriptions that are gone."""

from __future__ import annotations

from meetpoint.matching.index.kernels.jit import kernel

__all__ = ["drop_dead", "drop_doubles", "group_by_event"]


@kernel
def group_by_event(events, numbers, starts, grouped):
    """Numbers in the order of events; starts[e] is where those of event e begin."""
    starts[:] = 0
    for i in range(len(events)):
        starts[events[i] + 1] += 1
    for e in range(len(starts) - 1):
        starts[e + 1] += starts[e]
    for i in range(len(events)):
        e = events[i]
        grouped[starts[e]] = numbers[i]
        starts[e] += 1
    for e in range(len(starts) - 1, 0, -1):
        starts[e] = starts[e - 1]
    starts[0] = 0


@kernel
def drop_doubles(starts, grouped, tried, mark, base, out_event, out_number):
    """Each number once per event; `tried` holds the mark of the event in which a number was last seen."""
    k = 0
    for e in range(len(starts) - 1):
        stamp = mark + e + 1
        for i in range(starts[e], starts[e + 1]):
            number = grouped[i]
            if tried[number] != stamp:
                tried[number] = stamp
                out_event[k] = base + e
                out_number[k] = number
                k += 1
    return k


@kernel
def drop_dead(numbers, events, dead):
    """Keep, in place, the pairs whose number has no bit in `dead`; how many they are."""
    k = 0
    for i in range(len(numbers)):
        number = numbers[i]
        numbers[k] = number
        events[k] = events[i]
        k += 1 - ((dead[number >> 3] >> (number & 7)) & 1)
    return k
