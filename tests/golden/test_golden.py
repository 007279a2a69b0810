"""Bytes on the wire, records on disk and runs of the simulator are those of the golden files.

A change that is meant is written with `python -m tests.golden wire` or `… runs`. One of `wire` breaks networks whose
brokers are of both versions, and disks of the version before: it needs a new version of the protocol.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.runs import CASES, digest
from tests.golden.samples import encoded
from tests.tiers import SOAK

HERE = Path(__file__).parent
WIRE = json.loads((HERE / "wire.json").read_text())
RUNS = json.loads((HERE / "runs.json").read_text())


def test_every_message_has_the_bytes_that_it_had() -> None:
    found = encoded()
    assert found.keys() == WIRE.keys()
    assert {tag: made for tag, made in found.items() if made != WIRE[tag]} == {}


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "number"), CASES if SOAK else [case for case in CASES if case[1] == 0])
def test_a_run_of_the_simulator_is_what_it_was(scheme: str, number: int) -> None:
    assert digest(scheme, number) == RUNS[f"{scheme} {number}"]


def test_every_run_has_its_line() -> None:
    assert {f"{scheme} {number}" for scheme, number in CASES} == RUNS.keys()
