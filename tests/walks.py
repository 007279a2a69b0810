"""Walks through the code: which modules and functions one operation runs through, on a network of real brokers.

    python -m tests.walks       # prints the walks of `publish`, up to the delivery, and of `subscribe`

A walk is what ran in every one of several repetitions, so that timers that happen to fire meanwhile are no part of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import meetpoint as mp
from tests.virtual_time import run

__all__ = ["Walk", "walks"]

SOURCE = str(Path(mp.__file__).parent)
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
REPEATS = 5


@dataclass(frozen=True)
class Walk:
    """The functions of one operation, as `module: qualified name`."""

    functions: frozenset[str]

    @property
    def modules(self) -> list[str]:
        return sorted({function.partition(":")[0] for function in self.functions})

    @property
    def closures(self) -> list[str]:
        return sorted(function for function in self.functions if "<locals>" in function)

    def __str__(self) -> str:
        counts = f"{len(self.modules)} modules, {len(self.functions)} functions, {len(self.closures)} closures"
        return "\n".join([counts, *(f"    {module}" for module in self.modules)])


class _Tracer:
    """Records the code of this package that runs in any thread that was started after `install`."""

    def __init__(self) -> None:
        self._recorded: set[CodeType] | None = None

    def install(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def uninstall(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and self._recorded is not None:
            self._recorded.add(frame.f_code)

    async def record(self, operation: Callable[[], Awaitable[None]]) -> Walk:
        """Run an operation several times, and return what ran in all of them."""
        found: list[set[CodeType]] = []
        for _ in range(REPEATS):
            self._recorded = set()
            await operation()
            found.append(self._recorded)
            self._recorded = None
        return Walk(frozenset(filter(None, map(_name, set.intersection(*found)))))


def _name(code: CodeType) -> str | None:
    """Return the module and qualified name of a function of the package; None for comprehensions and other code."""
    if not code.co_filename.startswith(SOURCE) or code.co_name in {
        "<listcomp>",
        "<setcomp>",
        "<dictcomp>",
        "<genexpr>",
    }:
        return None
    module = code.co_filename.removeprefix(f"{SOURCE}/").removesuffix(".py").replace("/", ".")
    return None if code.co_name == "<module>" else f"{module}: {code.co_qualname}"


def walks() -> dict[str, Walk]:
    """Return the walks of `publish` and `subscribe`: three brokers, the scheme `meet`, clients at two of them."""
    tracer = _Tracer()
    names = iter(range(100))

    async def main() -> dict[str, Walk]:
        async with (
            mp.local(brokers=3) as here,
            mp.connect(here.addresses[0]) as publisher,
            mp.connect(here.addresses[1]) as subscriber,
        ):
            alerts = await subscriber.subscribe("price > 120", durable="alerts")
            events = alerts.events()

            async def publish() -> None:
                await publisher.publish({"symbol": "OTE", "price": 121.5})
                event = await anext(events)
                await event.ack()

            async def subscribe() -> None:
                await subscriber.subscribe("price > 120", durable=f"other{next(names)}")

            return {"publish": await tracer.record(publish), "subscribe": await tracer.record(subscribe)}

    tracer.install()
    try:
        return run(main())
    finally:
        tracer.uninstall()


if __name__ == "__main__":
    for name, walk in walks().items():
        sys.stdout.write(f"{name}: {walk}\n")
