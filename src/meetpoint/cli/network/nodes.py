"""What the dashboard may do with the brokers of `meetpoint up`: a `Manager` for the gateway."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Literal, Protocol

from meetpoint.cli.network.children import Child
from meetpoint.errors import SetupError

if TYPE_CHECKING:
    from meetpoint.gateway.dashboard import LocalBroker

__all__ = ["Nodes"]


class Run(Protocol):
    """Whoever runs the brokers."""

    @property
    def children(self) -> list[Child]:
        """All brokers, also those that are down."""

    async def add(self) -> Child:
        """Start one more."""

    def let_leave(self, child: Child) -> None:
        """Have one hand everything over."""


class Nodes:
    """The brokers of this machine, as the gateway manages them."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def nodes(self) -> list[LocalBroker]:
        """All of them, in the order of their addresses."""
        from meetpoint.gateway.dashboard import LocalBroker

        return [LocalBroker(child.name, child.address, _state(child)) for child in self._run.children]

    async def join(self) -> str:
        """Start a new one."""
        try:
            child = await self._run.add()
        except SetupError as error:
            raise _cannot(str(error)) from None
        return f"{child.name} starts at {child.address}, and joins"

    async def leave(self, address: str) -> str:
        """Have one hand everything over."""
        child = self._find(address)
        if not child.is_running:
            raise _cannot(f"{child.name} is down; start it, so that it can hand over what it has")
        if child.is_leaving:
            raise _cannot(f"{child.name} is leaving already")
        if sum(each.is_running and not each.is_leaving for each in self._run.children) < 2:
            raise _cannot(f"{child.name} is the last that runs; nobody could take over what it keeps")
        self._run.let_leave(child)
        return f"{child.name} hands everything over, and goes"

    async def crash(self, address: str) -> str:
        """Kill one at once, as a crash would."""
        child = self._find(address)
        if not child.is_running:
            raise _cannot(f"{child.name} is down already")
        child.hold()
        child.signal(signal.SIGKILL)
        return f"{child.name} was killed; the others go on without it"

    async def start(self, address: str) -> str:
        """Start one that is down."""
        child = self._find(address)
        if child.is_running or child.is_wanted:
            raise _cannot(f"{child.name} runs, or is about to")
        child.resume()
        return f"{child.name} starts, and comes back with what it had"

    def _find(self, address: str) -> Child:
        found = next((child for child in self._run.children if address in (child.address, child.name)), None)
        if found is None:
            from meetpoint.gateway.http.errors import ApiError

            raise ApiError(404, "node", f"no broker at {address!r} is run here; GET /api/network lists them")
        return found


def _cannot(reason: str) -> Exception:
    from meetpoint.gateway.http.errors import ApiError

    return ApiError(409, "node", reason)


def _state(child: Child) -> Literal["running", "stopped", "leaving"]:
    if not child.is_running:
        return "stopped"
    return "leaving" if child.is_leaving else "running"
