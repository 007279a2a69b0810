"""`meetpoint sim`: one object, exit codes, refusals in one line, the same trace in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command, meetpoint

__all__ = ["meetpoint"]

SMALL = ("--nodes", 8, "--subscriptions", 30, "--events", 20, "--lookups", 10, "--fault-seconds", 10)
SIX = ("missing", "duplicate", "spurious", "out_of_order", "invariants_broken", "lookups_wrong")


@pytest.mark.slow
def test_a_run_is_one_object_with_six_zeros(meetpoint: Command) -> None:
    ran = meetpoint("sim", *SMALL, "--seed", 7, "--json")
    told = json.loads(ran.out)
    assert ran.out.count("\n") == 1
    assert (ran.code, ran.err) == (0, "")
    assert [told[name] for name in SIX] == [0] * 6
    assert (told["seed"], told["events"], told["subscriptions"], told["lookups"]) == (7, 20, 30, 10)
    assert told["events_acknowledged"] == 20
    assert told["messages"] > 0
    for name in ("lookup_hops", "messages_per_node", "bytes_per_node", "subids_per_event"):
        assert set(told[name]) == {"mean", "p50", "max"}


def test_people_get_a_table(meetpoint: Command) -> None:
    ran = meetpoint("sim", *SMALL)
    assert ran.code == 0
    assert "missing 0, duplicate 0, spurious 0, out_of_order 0, invariants_broken 0, lookups_wrong 0" in ran.out
    assert "hops a lookup" in ran.out


def test_a_fault_that_never_happens_is_exit_code_1_with_the_command_that_repeats_it(
    meetpoint: Command, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("faults: {crash: 1}")
    few = ("--nodes", 2, "--subscriptions", 0, "--events", 0, "--lookups", 0, "--faults", plan, "--seed", 5)
    ran = meetpoint("sim", *few, "--fault-seconds", 2, "--recovery-seconds", 10, "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["never_injected"] == ["crash"]
    first = ran.err.splitlines()[0]
    assert first.startswith("meetpoint: seed 5: crash never happened; repeat it with: meetpoint sim --overlay chord ")
    assert first.endswith("--fault-seconds 2 --recovery-seconds 10 --seed 5")


@pytest.mark.slow
def test_many_seeds_are_summed_up(meetpoint: Command) -> None:
    ran = meetpoint("sim", *SMALL, "--seeds", "3..5", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["seeds"], told["failed_seeds"], told["events"]) == (0, 3, [], 60)
    assert [told[name] for name in SIX] == [0] * 6
    again = json.loads(meetpoint("sim", *SMALL, "--seed", 3, "--seeds", 3, "--json").out)
    assert {**told, "cpu_s": 0, "messages_per_s": 0} == {**again, "cpu_s": 0, "messages_per_s": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--faults", "chrun"), "faults, --faults: 'chrun' is no plan; name one of none, churn"),
        (("--overlay", "cord"), "overlay: there is no 'cord'; choose from: chord"),
        (("--scheme", "food"), "scheme: there is no 'food'; choose from: flood"),
        (("--scheme", "flood:hybrid"), "scheme flood has no options: say flood instead of flood:hybrid"),
        (("--detector", "good"), "'good' is no detector; it is perfect or imperfect."),
        (("--detector", "perfect", "--faults", "lossy"), "does not go with a perfect failure detector"),
        (("--seeds", "5..3"), "the second number is not below the first"),
        (("--seeds", "1.."), "'1..' are no seeds; write FROM..TO"),
        (("--seeds", "1000001"), "there are 1 to 1,000,000"),
        (("--seeds", "1..2", "--story", "e1"), "a story is of one run"),
        (("--nodes", "0"), "Invalid value for '--nodes'"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_exit_code_2(
    meetpoint: Command, arguments: tuple[str, ...], message: str
) -> None:
    ran = meetpoint("sim", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.slow
def test_a_story_is_told(meetpoint: Command) -> None:
    ran = meetpoint("sim", *SMALL, "--story", "e1")
    assert ran.code == 0
    assert "is asked" in ran.out
    ran = meetpoint("sim", *SMALL, "--story", "e1000")
    assert "e1000" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["none", "all"])
def test_one_seed_is_one_trace_whatever_the_hash_seed(faults: str) -> None:
    def digest(hash_seed: str) -> str:
        arguments = ("sim", *SMALL, "--faults", faults, "--seed", 4, "--recovery-seconds", 20, "--json")
        ran = subprocess.run(
            [str(Path(sys.executable).with_name("meetpoint")), *map(str, arguments)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        return str(json.loads(ran.stdout)["digest"])

    assert digest("1") == digest("2")


def test_the_simulator_needs_neither_arrow_nor_numba() -> None:
    heavy = ("numpy", "pyarrow", "numba", "pyspark", "pandas")
    code = f"import sys, meetpoint.lab.sim.run, meetpoint.catalog; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
