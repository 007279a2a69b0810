"""`python -m benchmarks.matcher` at its smallest: all parts run, and what is told of goals is right."""

from __future__ import annotations

import json

import pytest

from benchmarks import matcher
from benchmarks.figures import Figure, figure, ratio
from benchmarks.matcher import GOALS, PARTS, main
from meetpoint.lab.workloads.mixes import MIXES


def test_the_quick_run_measures_everything(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--json"])
    told = json.loads(capsys.readouterr().out)
    figures = {one["name"]: one for one in told["figures"]}
    paths = [path for path in GOALS if path == "portable" or told["machine"]["avx512"]]
    assert [name.split(", ")[2] for name in figures if name.startswith("ticks")] == paths * 3
    assert [name.split(",")[0] for name in figures if f", 500 subscriptions, {paths[0]}" in name] == list(MIXES)[1:]
    for name in ("bytes a subscription", "opening", "updated while matching", "the longest match during changes"):
        assert figures[name]["goal"] is not None
    for one in figures.values():
        assert one["low"] <= one["value"] <= one["high"] or one["name"].endswith("while matching")
        assert one["value"] > 0
        assert one["met"] is None


def test_some_parts_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--only", "single,file"])
    lines = capsys.readouterr().out.splitlines()
    assert "cores" in lines[0]
    assert [line.split(" ")[0] for line in lines[-5:]] == ["saving", "the", "opening", "the", "sizes"]
    with pytest.raises(SystemExit):
        main(["--only", "singles"])
    assert f"choose of {', '.join(PARTS)}" in capsys.readouterr().err


def test_goals_are_judged(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [
        ratio("matching", [1.0, 2.0, 2.0], [8.0, 8.0, 10.0], 100, goal=5.0, far=9.0),
        figure("bytes", [5.0], "B", goal=5.0, at_most=True),
        figure("loading", [3.0, 1.0, 2.0], "s", goal=1.5, at_most=True),
        figure("saving", [1.0], "s"),
    ]
    assert figures[0] == Figure("matching", 4.0, 4.0, 8.0, "x", goal=5.0, far=9.0, events_per_s=(50.0, 12.5))
    assert [one.met for one in figures] == [False, True, False, None]
    monkeypatch.setattr(matcher, "run", lambda sizes, parts: iter(figures))
    main([])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[3:]]
    assert lines == [
        "matching 5 4 x 4 … 8 50 to 12 NOT met (far goal 9: not yet)",
        "bytes at most 5 5 B met",
        "loading at most 1.50 2 s 1 … 3 NOT met",
        "saving 1 s",
        "1 of 3 goals met",
    ]
