"""The package as a whole: what importing it costs, and that the tree names no machine it was made on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import meetpoint

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"numba", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer", "yaml"}


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, meetpoint; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name.partition(".")[0] for name in told.split()} & HEAVY == set()


def test_version_is_the_installed_one() -> None:
    assert meetpoint.__version__ == version("meetpoint")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = meetpoint.no_such_name


def tracked_files() -> list[Path]:
    """What git would commit: files that are tracked, or new and not ignored."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    return [path for name in names if name and (path := ROOT / os.fsdecode(name)).is_file()]


@pytest.mark.slow
def test_no_file_names_a_package_index_or_this_machine() -> None:
    machine = [re.escape(str(place)) for place in (ROOT, Path.home(), sys.prefix) if len(Path(place).parts) > 2]
    patterns = [  # none of which matches its own text
        *(rf"{place}(?![\w.-])" for place in machine),
        r"/(?:home|root|Users)/\w",
        r"index[-_]url\b.*:/{2}",
        r"\bhttps?:/{2}\S+/simple\b",
        r"\bhttps?:/{2}[^\s/]+@",
    ]
    pattern = re.compile("|".join(patterns))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if (match := pattern.search(line))
    ]
    assert found == []
