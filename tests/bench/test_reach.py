"""The benchmark of `reach` runs; and what it tells of is so in a small network."""

from __future__ import annotations

import json

import pytest

from benchmarks.reach import PLAIN, PUSHED, QUENCHED, Case, main, run


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--json", "--only", "copies"])
    names = [one["name"] for one in json.loads(capsys.readouterr().out)]
    assert "messages an event, with / without" in names


def test_a_network_in_which_nothing_is_wanted_is_quenched() -> None:
    case = Case(nodes=8, subscriptions=0, events=160)
    assert run(case, QUENCHED, 1).messages < 0.6 * run(case, PLAIN, 1).messages


def test_ids_that_are_pushed_away_relieve_the_fullest() -> None:
    case = Case(nodes=8, attributes=8, subscriptions=80, events=10, rest_s=40.0, popular=0.8)
    assert run(case, PUSHED, 1).entries[0] < 0.8 * run(case, PLAIN, 1).entries[0]
