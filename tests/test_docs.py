"""The examples in README.md and docs/ do what they say: a comment behind an expression is its value."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in (
        ROOT / "README.md",
        *(ROOT / "docs" / name for name in ("client.md", "language.md", "matching.md", "simulator.md")),
    )
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
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), (page.name, target)


@pytest.mark.parametrize("package", sorted((ROOT / "src").rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_every_package_says_what_it_is(package: Path) -> None:
    told = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8")))
    assert told is not None
    assert len(told.split()) > 4, "which modules it has says the folder; what they are for says its docstring"


def test_the_glossary_names_what_there_is() -> None:
    modules = [*(ROOT / "src" / "meetpoint").rglob("*.py")]
    defined = {
        name
        for path in modules
        for name in re.findall(r"^ *(?:class |def |self\.)(\w+)", path.read_text(), re.MULTILINE)
    }
    there = defined | {path.stem for path in modules} | {path.parent.name for path in modules}
    rows = [line for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines() if "|" in line]
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row.rstrip("| ").rpartition("|")[2])]
    assert named
    assert [name for name in named if name.rpartition(".")[2] not in {*there, "meetpoint"}] == []


def test_class_names_of_the_node_are_made_of_the_glossarys_words() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    known = {form for word in re.findall(r"[A-Za-z]+", text.replace("-", "")) for form in _forms(word.lower())}
    known |= {form for word in re.findall(r"[A-Z][a-z]+", text) for form in _forms(word.lower())}
    strange = {
        (word, node.name)
        for part in ("node", "placement", "schemes")
        for path in (ROOT / "src" / "meetpoint" / part).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for word in re.findall(r"[A-Z][a-z]+", node.name)
        if not _forms(word.lower()) & known
    }
    assert strange == set(), "use a term of docs/glossary.md, or define the new one there"


def _forms(word: str) -> set[str]:
    """Return a word and what it may be a form of: plural, participle, agent."""
    stems = {word, *(word.removesuffix(end) for end in ("s", "es", "d", "ed", "n", "en", "ing", "er", "or"))}
    stems |= {re.sub("ie[sd]$", "y", word), re.sub("ing$", "e", word), re.sub("ation$", "", word)}
    return {*stems, *(re.sub(r"(.)\1$", r"\1", stem) for stem in stems)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    roots = (ROOT, ROOT / "src" / "meetpoint", ROOT / "tests")
    named = re.findall(r"`(\w+/[\w/]+\.py)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
    assert named or page.name != "ARCHITECTURE.md"


def test_the_layers_are_those_that_are_checked() -> None:
    drawn = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("```")[1]
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"[a-z]+", layer) for layer in checked[0]["layers"]]
    lines = [line for line in drawn.splitlines() if line.strip()]
    assert len(lines) == len(layers)
    for line, layer in zip(lines, layers, strict=True):
        assert re.findall(r"[a-z]+", line)[: len(layer)] == layer
