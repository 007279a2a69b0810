"""The lists of tests/tiers.py name what there is, and the tiers choose as they say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tiers import NOT_QUICK, OVER_10_S, is_under, spread

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("listed", [*NOT_QUICK, *OVER_10_S])
def test_what_is_listed_exists_and_says_why(listed: str) -> None:
    file, _, name = listed.partition("::")
    path = ROOT / file
    assert path.exists(), f"tests/tiers.py: there is no {file}; take it off the list"
    if name:
        functions = {each.name for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.FunctionDef)}
        assert name.partition("[")[0] in functions, f"tests/tiers.py: {file} has no {name}; take it off the list"
    assert len(({**NOT_QUICK, **OVER_10_S}[listed]).split()) > 1, f"tests/tiers.py: {listed} does not say why"


def test_a_folder_a_file_a_test_and_a_case_are_listed() -> None:
    nodeid = "tests/broker/test_door.py::test_a[1-x]"
    for listed in ("tests/broker", "tests/broker/test_door.py", "tests/broker/test_door.py::test_a", nodeid):
        assert is_under([listed], nodeid)
    for other in (
        "tests/ne",
        "tests/broker/test_do",
        "tests/broker/test_door.py::test_",
        "tests/broker/test_door.py::test_a[1]",
    ):
        assert not is_under([other], nodeid)


def test_cases_are_spread() -> None:
    assert spread("abcdefg", 3) == ["a", "d", "g"]
    assert spread("abc", 3) == ["a", "b", "c"]
    assert spread("", 3) == []
