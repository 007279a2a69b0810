"""The examples in README.md and docs/ do what they say: a comment behind an expression is its value."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in (ROOT / "README.md", *(ROOT / "docs" / name for name in ("language.md", "matching.md", "simulator.md")))
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL))
    if "spark" not in block and "mp://" not in block  # these need more than Python, and have tests of their own
]


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_give_what_the_comment_behind_them_says(block: str) -> None:
    names: dict[str, object] = {}
    exec(block, names)
    checked = 0
    for line in block.splitlines():
        expression, _, comment = line.partition("  # ")
        if comment and not line.startswith((" ", "#")):
            assert repr(eval(expression, names)) == comment.strip(), line
            checked += 1
    assert checked


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 3


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), (page.name, target)


MODULES = ROOT / "src" / "meetpoint"
TOLD_AS_ONE = ("bench.", "experiments.", "matching.index.kernels.")
"""Packages below these are told of as a whole."""


def test_every_module_is_told_of_in_the_section_of_its_package() -> None:
    sections = re.split(r"^##+ ", (ROOT / "docs" / "modules.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    told: dict[str, set[str]] = {}
    for section in sections:
        heading, _, text = section.partition("\n")
        words = {word for names in re.findall(r"`([a-z0-9_.]+)`", text) for word in names.split(".")}
        for package in re.findall(r"[a-z]+", heading):
            told.setdefault(package, set()).update(words)
    for path in MODULES.glob("*/**/*.py"):
        *packages, name = path.relative_to(MODULES).with_suffix("").parts
        is_below = len(packages) > 1 and f"{'.'.join(packages)}.".startswith(TOLD_AS_ONE)
        if not name.startswith("__") and not is_below:
            assert name in told[packages[0]], f"docs/modules.md does not tell of {path.relative_to(MODULES)}"


def test_the_layers_are_those_that_are_checked() -> None:
    drawn = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("```")[1]
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"[a-z]+", layer) for layer in checked[0]["layers"]]
    lines = [line for line in drawn.splitlines() if line.strip()]
    assert len(lines) == len(layers)
    for line, layer in zip(lines, layers, strict=True):
        assert re.findall(r"[a-z]+", line)[: len(layer)] == layer
