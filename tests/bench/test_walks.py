"""`python -m benchmarks.walks` at its smallest: what is known of leaves spares questions."""

from __future__ import annotations

import pytest

from benchmarks.walks import grown, leaves, main, measure
from meetpoint.catalog import OVERLAYS


def test_what_is_known_of_leaves_spares_questions_and_messages() -> None:
    net = grown("chord", 6, 50, 10, 1)
    assert sum(2.0**-depth for depth in leaves(net)) == 1.0
    cost = measure(net, 10, 1)
    assert cost["cold"].regions > cost["near"].regions >= cost["warm"].regions == 1.0
    assert cost["cold"].messages > cost["warm"].messages
    assert all(each.hops < each.messages for each in cost.values())


def test_the_command_prints_a_row_for_each_overlay(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick"])
    told = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in told[2:]] == list(OVERLAYS)
