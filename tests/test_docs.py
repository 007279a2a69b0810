"""The examples in README.md and docs/ do what they say: a comment behind an expression is its value."""

from __future__ import annotations

import re
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
