"""The package as a whole: what importing it costs, what each extra is for, and that no file names this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path

import pytest

import meetpoint
from meetpoint.errors import EXTRA_OF, SetupError, need_extra, optional_imports

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


def test_all_public_names_are_shown_and_can_be_had() -> None:
    assert dir(meetpoint) == sorted(meetpoint.__all__)
    assert {"Event", "EventId", "connect", "local", "match", "parse_filter"} <= set(dir(meetpoint))
    assert all(getattr(meetpoint, name) is not None for name in dir(meetpoint))


# -- extras ------------------------------------------------------------------------------------------------------------

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_AS = {"nats_py": "nats", "prometheus_client": "prometheus_client", "pyjwt": "jwt"}


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("-", "_")


def extra_modules() -> set[str]:
    """Names that cannot be imported with `pip install meetpoint` alone."""
    distributions: set[str] = set()
    to_do = [name_of(each) for each in PROJECT["dependencies"]]
    while to_do:
        name = to_do.pop()
        if name not in distributions:
            distributions.add(name)
            try:
                found = requires(name) or []
            except PackageNotFoundError:  # not for this platform
                continue
            to_do += [name_of(each) for each in found if "extra ==" not in each]
    there = packages_distributions()
    return {
        top for top, names in there.items() if not {name_of(each) for each in names} & {*distributions, "meetpoint"}
    }


BASE_ONLY = """
import json, sys

missing = set(json.loads(sys.argv.pop(1)))

class BaseOnly:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)  # what is installed can still be asked
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in missing else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [BaseOnly(finder) for finder in sys.meta_path]
"""
"""The start of a program that finds only what comes with the base installation."""


def with_base_only(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BASE_ONLY + program, json.dumps(sorted(extra_modules())), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_the_first_example_of_the_readme_needs_no_extra() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    done = with_base_only(f"import meetpoint; dir(meetpoint)\n{block}\n{MATCHES}")
    assert (done.stderr, done.returncode) == ("", 0)


MATCHES = """
import meetpoint as mp

assert mp.match([{"n": 1}, {"n": 3}], {"ann": "n > 2"}).to_pylist() == [{"event": 1, "subscription": "ann"}]
index = mp.Index()
index.add_many((str(n), mp.parse_filter(f"n = {n}")) for n in range(1000))
assert index.match({"n": 7}) == ["7"]
assert str(mp.connect("mp://localhost:1")).startswith("<Connecting mp://localhost:1")
for name in dir(mp):
    getattr(mp, name)
"""


@pytest.mark.slow
def test_a_network_in_the_process_needs_no_extra_unless_it_serves_http() -> None:
    done = with_base_only("""
import meetpoint as mp
from meetpoint.errors import SetupError

with mp.local(brokers=2) as here, here.connect_sync() as net:
    sub = net.subscribe("n > 1")
    net.publish_many({"n": n} for n in (1, 2))
    assert next(iter(sub))["n"] == 2
try:
    mp.local(brokers=1, admin="127.0.0.1:0").start()
except SetupError as error:
    print(error)
""")
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "aiohttp is not installed; run: pip install 'meetpoint[broker]'\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("up", "broker"),
        ("broker", "broker"),
        ("gateway", "broker"),
        ("ca init keys", "broker"),
        ("token key keys", "broker"),
        ("pipeline measure nothing", "spark"),
        ("demo", "demo"),
    ],
)
def test_a_command_without_its_extra_names_it_on_one_line(arguments: str, extra: str, tmp_path: Path) -> None:
    program = f"import os; os.chdir({str(tmp_path)!r}); from meetpoint.cli import main; main()"
    done = with_base_only(program, *arguments.split())
    assert re.fullmatch(
        rf"meetpoint: [^\n]* not installed[^\n]*; run: pip install 'meetpoint\[{extra}\]'\n", done.stderr
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


@pytest.mark.slow
def test_a_command_of_the_base_works_alone(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"n": 3}\n')
    (tmp_path / "subs.csv").write_text("id,filter\nann,n > 2\n")
    done = with_base_only(
        "from meetpoint.cli import main; main()",
        "match",
        str(tmp_path / "events.jsonl"),
        "--subs",
        str(tmp_path / "subs.csv"),
    )
    assert (done.stdout, done.returncode) == ('{"event": 0, "subscription": "ann"}\n', 0)


def test_each_optional_package_is_named_with_its_extra() -> None:
    for package, extra in EXTRA_OF.items():
        names = {name_of(each) for each in PROJECT["optional-dependencies"][extra]}
        assert package in {IMPORTED_AS.get(name, name) for name in names} or package == "grpc"
    base = {name_of(each) for each in PROJECT["dependencies"]}
    extras = PROJECT["optional-dependencies"]
    assert {"numpy", "pyarrow"} <= base
    assert not base & {name_of(each) for each in extras["broker"]}
    assert all("broker" in extras[name][0] for name in ("demo", "dev", "bench"))


def test_a_missing_package_is_told_with_the_extra_to_install() -> None:
    with (
        pytest.raises(SetupError, match=r"^jwt is not installed; run: pip install 'meetpoint\[broker\]'$"),
        optional_imports(),
    ):
        raise ModuleNotFoundError("No module named 'jwt.algorithms'", name="jwt.algorithms")
    with pytest.raises(ModuleNotFoundError, match="of_ours"), optional_imports():
        raise ModuleNotFoundError("No module named 'meetpoint.of_ours'", name="meetpoint.of_ours")
    need_extra("broker")


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
        r"(?<!\w)/(?:home|root|Users)/\w",
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
