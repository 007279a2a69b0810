"""The benchmark of ids runs, and what it tells is what is claimed of them."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.figures import Figure
from benchmarks.reach_ids import main


def test_signatures_and_the_hypercube_take_fewer_messages(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--json"])
    figures = msgspec.json.decode(capsys.readouterr().out, type=list[Figure])
    values = {figure.name: figure.value for figure in figures}
    duties = "messages with duties, an event"
    assert values[f"90% =, signatures of 8: {duties}"] < values[f"90% =, attributes: {duties}"]
    assert values[f"hypercube: {duties}"] < min(values[f"{overlay}: {duties}"] for overlay in ("chord", "pastry"))
    regions = "regions that serve it"
    assert values[f"hypercube: {regions}"] < values[f"chord: {regions}"], "an arc of a ring is several regions"
