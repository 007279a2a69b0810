"""An index that is not compiled yet is compiled by a child: beside the broker, or before it where there is much."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from meetpoint.broker import Broker, make_config
from meetpoint.broker import run as run_on_real_clock
from meetpoint.broker.observe.logs import Log
from meetpoint.broker.startup import LOOK_S, _run_child, are_compiled, warm_up
from meetpoint.language import parse_filter
from meetpoint.matching.index import Index, warmup
from meetpoint.matching.matcher import can_index, postponed_index
from meetpoint.node.home.subscription_table import Subscription, SubscriptionTable
from tests.broker.talking import run
from tests.workloads import random_events, random_filter

READY_S = 120
"""How long a test waits for a broker that is soon ready on an idle machine."""


def compiled() -> dict[str, int]:
    """Return how many versions of each loop there are in this process."""
    import importlib
    import pkgutil

    from numba.core.dispatcher import Dispatcher  # type: ignore[import-not-found, unused-ignore]

    import meetpoint.matching.index.kernels as kernels

    found = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        for name, value in vars(importlib.import_module(f"{kernels.__name__}.{module.name}")).items():
            if isinstance(value, Dispatcher):
                for each in (value, getattr(value, "brief", None)):
                    if each is not None:
                        found[f"{module.name}.{name}.{each is value}"] = len(each.signatures)
    return found


@pytest.mark.slow
def test_nothing_is_left_to_compile_afterwards() -> None:
    assert warmup.warm_up()
    before, rng = compiled(), random.Random(7)
    index = Index.from_filters((f"x{n}", parse_filter(random_filter(rng, 2))) for n in range(1500))
    for n in range(300):
        index.add(f"y{n}", parse_filter(random_filter(rng, 2)))
        index.remove(f"x{n}")
        index.update(f"x{n + 400}", parse_filter(random_filter(rng, 2)))
    for event in random_events(rng, 100):
        index.match(event)
    index.compact()
    for event in random_events(rng, 100):
        index.match(event)
    assert compiled() == before


def test_a_home_goes_on_without_an_index_while_it_is_postponed() -> None:
    standing = SubscriptionTable(10)
    with postponed_index():
        for n in range(400):
            standing.put(str(n), Subscription(n, f"a > {n}"), parse_filter(f"a > {n}"))
        assert len(standing.match({"a": 50})) == 50
        assert not standing.has_index()
    assert len(standing.match({"a": 50})) == 50
    assert standing.has_index()


def test_code_counts_when_it_is_newer_than_its_source(tmp_path: Path) -> None:
    assert not are_compiled([tmp_path / "nowhere"])
    assert not are_compiled([tmp_path])
    (tmp_path / "kernels_1a2b").mkdir()
    mark = tmp_path / "kernels_1a2b" / warmup.MARK
    mark.touch()
    assert are_compiled([tmp_path / "nowhere", tmp_path])
    os.utime(mark, (1.0, 1.0))
    assert not are_compiled([tmp_path])


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for compiled code with nothing in it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    return folder


def children() -> list[str]:
    """Command lines of processes that this one has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = status.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append((status.parent / "cmdline").read_bytes().decode())
        except OSError:
            continue
    return [line for line in found if "index.warmup" in line]


def broker_at(folder: Path, **said: Any) -> Broker:
    quiet = {"listen": "127.0.0.1:0", "admin": "none", "log": {"level": "error"}}
    return Broker(make_config({**quiet, "data": str(folder), **said}))


@pytest.mark.skipif(sys.platform != "linux", reason="children are looked up in /proc")
def test_a_broker_with_little_begins_beside_it_once_an_index_is_wanted_and_ends_it(cold: Path, tmp_path: Path) -> None:
    async def main() -> None:
        one = broker_at(tmp_path / "data")
        await one.start()
        await one.wait_ready(READY_S)
        await asyncio.sleep(3 * LOOK_S)
        assert not children()
        assert not can_index()
        while not children():
            await asyncio.sleep(0.01)
        assert len(children()) == 1
        assert not can_index()
        await one.stop()
        assert not children()
        assert can_index()

    run_on_real_clock(main())  # the index is compiled by a process


@pytest.mark.skipif(sys.platform != "linux", reason="children are looked up in /proc")
def test_a_broker_with_much_waits_for_it_and_can_be_stopped_meanwhile(
    cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        first = broker_at(tmp_path / "data", node={"index_from": 10_000})
        await first.start()
        await first.wait_ready(READY_S)
        await first.stop()
        monkeypatch.setattr("meetpoint.broker.startup.WAIT_FROM", 0)
        again = broker_at(tmp_path / "data")
        starting = asyncio.get_running_loop().create_task(again.start())
        while not children():
            assert not starting.done()
            await asyncio.sleep(0.01)
        assert again.why_not_ready
        await again.stop()
        await asyncio.wait_for(starting, READY_S)
        assert await again.wait_stopped() == 0
        assert not children()

    run_on_real_clock(main())  # the index is compiled by a process


@pytest.mark.skipif(sys.platform != "linux", reason="children are looked up in /proc")
def test_a_child_that_is_not_wanted_any_more_is_ended_also_while_it_begins(cold: Path) -> None:
    async def main() -> None:
        for pause_s in (0.0, 0.0005, 0.001, 0.002, 0.004, 0.01):
            compiling = asyncio.create_task(_run_child())
            await asyncio.sleep(pause_s)
            compiling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await compiling
            assert not children(), pause_s

    run_on_real_clock(main())  # the index is compiled by a process


def test_a_broker_without_data_or_with_code_that_is_kept_starts_nothing(cold: Path, tmp_path: Path) -> None:
    async def main() -> None:
        def spawn(work: Any) -> Any:
            raise AssertionError("there is nothing to do")

        await warm_up(make_config({}), (), Log(), spawn)
        (cold / warmup.MARK).touch()
        await warm_up(make_config({"data": str(tmp_path)}), (), Log(), spawn)

    run(main())
