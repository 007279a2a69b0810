"""Rules that are wrong, each in one way: what the search must catch."""

from __future__ import annotations

from collections.abc import Iterable

from meetpoint.overlays.pastry.rules import LEFT, RIGHT, PastryRules, PastryState, PeerStatus, Side, is_ready

__all__ = ["DropsEarly", "HelpsAnyone", "ReadyUnleased", "RightFirst", "Trusting", "TwoAtOnce"]


class HelpsAnyone(PastryRules):
    """A node helps a joiner while it helps another."""

    def help(self, state: PastryState, joiner: bytes) -> PastryState | None:
        return super().help(state._replace(helping=None), joiner)


class TwoAtOnce(HelpsAnyone):
    """As published Pastry: two joiners are let into one gap at once, whomever they name as neighbours."""

    def may_enter(self, state: PastryState, side: Side, status: PeerStatus) -> bool:
        return True


class RightFirst(PastryRules):
    """A newcomer may get the lease of its right neighbour before it has that of the left one."""

    def may_enter(self, state: PastryState, side: Side, status: PeerStatus) -> bool:
        return status.ready or not state.grants[side] or status.near[side] == state.near[side]


class Trusting(PastryRules):
    """A node takes the leaves that it is told of for its own, without having heard from them."""

    def probe_answered(self, state: PastryState, status: PeerStatus, its_leaves: Iterable[bytes]) -> PastryState:
        state = super().probe_answered(state, status, its_leaves)
        return state._replace(leaves=self._leaves_among(state.me, (*state.leaves, *its_leaves), state.near))


class ReadyUnleased(PastryRules):
    """A joiner that has heard from all its leaves is ready, without a lease."""

    def _advance(self, state: PastryState) -> PastryState:
        state = super()._advance(state)
        return state if state.waits or is_ready(state) else state._replace(leases=state.near, member=True)


class DropsEarly(PastryRules):
    """A neighbour that is silent is dropped although the lease granted to it has not ended."""

    def drop(self, state: PastryState, node: bytes) -> PastryState | None:
        return self.drop_former(state, node)

    def drop_former(self, state: PastryState, node: bytes) -> PastryState:
        for side in (LEFT, RIGHT):
            state = self.grant_ended(state, side, node)
        dropped = super().drop(state, node)
        assert dropped is not None
        return dropped
