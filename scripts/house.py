"""Measure the code by the house rules of CONTRIBUTING.md and print a table; `--list` shows where.

A measure that is worse than its limit makes `make check` fail. Limits only go down: they are what was reached.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path("src/meetpoint")
OPENINGS = re.compile(r"(What|Who|Whoever|Whom|Whose|Those|Something|It|One)\b")
WORDS_MAX = 20
FLAT_FROM = 3
"""A class name that stands in so many packages, or more, has no one meaning."""
BANNED = ("errand", "custody", "badge", "desk", "shelf", "shelves", "heir", "safekeep", "planting", "parcel")
"""Private words that the glossary's terms replaced, in names of modules, classes and functions."""
NOUNS_IN_ING = {"ring", "string", "covering", "forwarding", "wording", "load_shedding", "tracing", "routing"}
"""Module names that end in -ing and are the field's nouns."""


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    value: float
    limit: float
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    path: Path
    tree: ast.Module
    lines: int

    @property
    def name(self) -> str:
        return ".".join(self.path.relative_to(SOURCE).with_suffix("").parts)

    @property
    def is_lab(self) -> bool:
        return self.path.is_relative_to(SOURCE / "lab")


def modules() -> list[Module]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        found.append(Module(path, ast.parse(text), text.count("\n")))
    return found


# -- size and rooms ----------------------------------------------------------------------------------------------------


def sizes(all_: list[Module]) -> Iterator[Measure]:
    for name, some, lines, count in (
        ("product", [m for m in all_ if not m.is_lab], 84_200, 381),
        ("lab", [m for m in all_ if m.is_lab], 22_000, 78),
    ):
        yield Measure(f"{name}: lines", sum(m.lines for m in some), lines)
        yield Measure(f"{name}: modules", len(some), count)


def flat(all_: list[Module]) -> Measure:
    folders = Counter(m.path.parent for m in all_ if m.path.name != "__init__.py")
    crowded = tuple(f"{folder}: {count}" for folder, count in folders.most_common() if count > 16)
    return Measure("most modules in one folder", max(folders.values()), 15, crowded)


def gerunds(all_: list[Module]) -> Measure:
    found = tuple(
        str(m.path) for m in all_ if m.path.stem.rpartition("_")[2].endswith("ing") and m.path.stem not in NOUNS_IN_ING
    )
    return Measure("modules named by a gerund", len(found), 0, found)


# -- names -------------------------------------------------------------------------------------------------------------


def _classes(all_: list[Module]) -> Iterator[tuple[Module, ast.ClassDef]]:
    for module in all_:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                yield module, node


def class_names(all_: list[Module]) -> Measure:
    packages = defaultdict(set)
    for module, node in _classes(all_):
        packages[node.name].add(module.path.parent)
    found = tuple(f"{name}: {len(at)}" for name, at in sorted(packages.items()) if len(at) >= FLAT_FROM)
    return Measure("class names in more than 2 packages", len(found), 1, found)


def banned(all_: list[Module]) -> Measure:
    pattern = re.compile("|".join(BANNED), re.IGNORECASE)
    found = [str(m.path) for m in all_ if pattern.search(m.path.stem)]
    for module in all_:
        found += [
            f"{module.path}:{node.lineno}: {node.name}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and pattern.search(node.name)
        ]
    return Measure("names with private words", len(found), 0, tuple(found))


def callbacks(all_: list[Module]) -> Iterator[Measure]:
    for package, limit in (("node", 1.2), ("placement", 3), ("schemes", 4)):
        some = [m for m in all_ if m.path.is_relative_to(SOURCE / package)]
        found = [place for m in some for place in _callback_parameters(m)]
        per_1000 = 1000 * len(found) / max(1, sum(m.lines for m in some))
        yield Measure(f"callback parameters per 1,000 lines: {package}", round(per_1000, 1), limit, tuple(found))


def _callback_parameters(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if each.annotation is not None and "Callable" in ast.unparse(each.annotation):
                    yield f"{module.path}:{node.lineno}: {node.name}({each.arg})"


# -- prose -------------------------------------------------------------------------------------------------------------


def _docstrings(module: Module) -> Iterator[tuple[int, str]]:
    """Yield docstrings of modules, classes and functions, and the strings below attributes."""
    for node in ast.walk(module.tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or isinstance(node, ast.Lambda | ast.IfExp):
            continue
        for before, each in zip([None, *body], body, strict=False):
            if not isinstance(each, ast.Expr) or not isinstance(each.value, ast.Constant):
                continue
            text = each.value.value
            starts = before is None and isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            )
            if isinstance(text, str) and (starts or isinstance(before, ast.Assign | ast.AnnAssign)):
                yield each.lineno, text


def first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    found = re.match(r".*?[.:;!?](?= |$)", paragraph)
    return found[0] if found else paragraph


def prose(all_: list[Module]) -> Iterator[Measure]:
    total, openings, long, stubs = 0, [], [], []
    for module in all_:
        for line, text in _docstrings(module):
            total += 1
            sentence = first_sentence(text)
            place = f"{module.path}:{line}: {sentence}"
            if OPENINGS.match(text.strip()):
                openings.append(place)
            if len(sentence.split()) > WORDS_MAX:
                long.append(place)
            if len(text.split()) < 3:
                stubs.append(place)
    yield Measure(
        "docstrings that open with What, Who, It, …: %", round(100 * len(openings) / total, 1), 0.1, (*openings,)
    )
    yield Measure("docstrings whose first sentence is long: %", round(100 * len(long) / total, 1), 0, tuple(long))
    yield Measure("docstrings of one or two words", len(stubs), 0, tuple(stubs))


# -- imports -----------------------------------------------------------------------------------------------------------


def loaded_by_client() -> Measure:
    program = "import sys, meetpoint.client; print(*sorted(m for m in sys.modules if m.startswith('meetpoint.node')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = tuple(done.stdout.split())
    return Measure("node modules loaded by import meetpoint.client", len(found), 0, found)


def measures() -> Iterator[Measure]:
    all_ = modules()
    yield from sizes(all_)
    yield flat(all_)
    yield gerunds(all_)
    yield class_names(all_)
    yield banned(all_)
    yield from callbacks(all_)
    yield from prose(all_)
    yield loaded_by_client()


def main() -> int:
    worse = 0
    for each in measures():
        is_worse = each.value > each.limit
        worse += is_worse
        print(f"{each.name:<56} {each.value:>9,g}  limit {each.limit:>9,g}{'  WORSE' if is_worse else ''}")
        if "--list" in sys.argv or is_worse:
            for place in each.where if "--list" in sys.argv else each.where[:20]:
                print(f"    {place}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
