"""The benchmark of trees and covering runs, and what it tells is what is claimed of them."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.figures import Figure
from benchmarks.trees import main


def test_the_tree_takes_messages_from_the_busiest_and_covering_from_all(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--json"])
    figures = msgspec.json.decode(capsys.readouterr().out, type=list[Figure])
    values = {figure.name: figure.value for figure in figures}
    assert all(value >= 0 for value in values.values())
    for overlay in ("chord", "pastry"):
        name = f"{overlay}, 16 nodes"
        assert values[f"{name}, tree: busiest sends"] < values[f"{name}, unicast: busiest sends"] == 15
    assert values["nested filters (80, 16 nodes), covering"] < values["nested filters (80, 16 nodes), uncovered"]
