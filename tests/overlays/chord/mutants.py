"""Rules that are wrong, each in one way: what the search and the state machine must catch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meetpoint.overlays.chord.rules import ChordRules, ChordState

__all__ = ["NeverReplaced", "PublishedJoin", "PublishedRules", "UncheckedNearer", "Uncut"]


class PublishedJoin(ChordRules):
    """The joiner takes its successor, and no list."""

    def join(self, me: bytes, member: bytes, its_succ: Sequence[bytes]) -> ChordState | None:
        state = super().join(me, member, its_succ)
        return None if state is None else state._replace(succ=self.listed(me, state.succ[:1]))


class UncheckedNearer(ChordRules):
    """A nearer successor is adopted without looking whether it lives."""

    def second_dead(self, state: ChordState) -> tuple[ChordState, bytes | None]:
        assert state.saved is not None
        return self.second_live(state, state.succ)


class NeverReplaced(ChordRules):
    """A predecessor is never pinged, and so never replaced when it is dead."""

    def rectify(self, state: ChordState, prdc_lives: bool) -> ChordState:
        return super().rectify(state, True)


class PublishedRules(PublishedJoin, UncheckedNearer, NeverReplaced):
    """Chord as published: joins without a list, and no look at who lives."""


class Uncut(ChordRules):
    """Not a mutant: the rules, with the assertion that no list was ever cut."""

    def listed(self, me: bytes, entries: Iterable[bytes]) -> tuple[bytes, ...]:
        given = tuple(entries)
        succ = super().listed(me, given)
        kept = min(self.length, len(given))
        assert succ[:kept] == given[:kept], "a list was cut"
        assert len(succ) == self.length, "a list is short"
        return succ
