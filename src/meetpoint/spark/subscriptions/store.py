"""A directory of compiled subscriptions: numbered versions that never change, and a pointer to the one in force.

    alerts/CURRENT                  the number of the version in force, replaced by rename
    alerts/v00000001/manifest.json  what the version holds, with a checksum of itself and one of every file
    alerts/v00000001/index.mpx      the index, to be mapped
    alerts/v00000001/filters.parquet, rejected.parquet
    alerts/v00000001/sample.arrow   some of the events it was compiled with, if there were any
    alerts/v00000001/meeting-1/, shards/  parts that a strategy makes when it is first used
    alerts/held/NAME                the number of a version that someone holds

A version is written under another name, synced, and renamed, so that half of one is never seen; whoever has opened a
version keeps it while newer ones are published. One publisher at a time renames and points, under a lock; a reader
needs none. Who may need a version again after a crash holds it: it is not removed then, however old.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import msgspec

from meetpoint.matching.io.rejects import SourceError

__all__ = [
    "FILTERS_FILE",
    "INDEX_FILE",
    "KEPT",
    "REJECTED_FILE",
    "SAMPLE_FILE",
    "SHARDS_FOLDER",
    "Contents",
    "FileNote",
    "Manifest",
    "Use",
    "Version",
    "add_part",
    "current",
    "current_number",
    "hold",
    "open_version",
    "publish",
    "versions",
]

FORMAT = 1
KEPT = 10
"""Versions that are kept where nobody says how many."""
INDEX_FILE, FILTERS_FILE, REJECTED_FILE = "index.mpx", "filters.parquet", "rejected.parquet"
SAMPLE_FILE = "sample.arrow"
SHARDS_FOLDER = "shards"

_MANIFEST, _CURRENT, _LOCK, _HELD = "manifest.json", "CURRENT", ".lock", "held"
_WRITING = ".writing-"
_STALE_SECONDS = 24 * 3600
"""Age at which what a dead publisher left is swept away."""
_NAME = re.compile(r"v(\d{8,})")
_CHUNK = 1 << 24


class Use(msgspec.Struct, frozen=True):
    """An attribute and the kind it is compared as (None: only IS NULL), with one filter that does so."""

    attribute: str
    kind: str | None
    id: str | int
    filter: str


class FileNote(msgspec.Struct, frozen=True):
    """How long a file is, and what its bytes hash to."""

    bytes: int
    sha256: str


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher says of a version."""

    subscriptions: int
    rejected: int
    first_reason: str | None
    """Why the first of the rejected was set aside."""
    id_type: str
    """Spark's name of the type of the ids: string, int, bigint."""
    uses: tuple[Use, ...]
    """Everything the filters compare, once each."""


class Manifest(Contents, frozen=True, kw_only=True):
    """The same with what the store adds."""

    format: int
    created: str
    files: dict[str, FileNote]
    checksum: str = ""


class Version(msgspec.Struct, frozen=True):
    """One version in a directory."""

    directory: str
    number: int
    manifest: Manifest

    @property
    def path(self) -> Path:
        return Path(self.directory, _name(self.number))

    @property
    def index_path(self) -> Path:
        return self.path / INDEX_FILE

    @property
    def index_bytes(self) -> int:
        return self.manifest.files[INDEX_FILE].bytes

    @property
    def filters_path(self) -> Path:
        """Parquet with the columns id, filter and subscriber, numbered as in the index."""
        return self.path / FILTERS_FILE

    @property
    def rejected_path(self) -> Path:
        """Parquet with the columns row, id, filter and reason."""
        return self.path / REJECTED_FILE

    @property
    def sample_path(self) -> Path:
        """An Arrow file of events; there is none where none were given."""
        return self.path / SAMPLE_FILE

    @property
    def shards_path(self) -> Path:
        return self.path / SHARDS_FOLDER

    def verify(self) -> None:
        """Read every file and compare its checksum; SourceError names the first that was changed."""
        for name, note in self.manifest.files.items():
            if _note(self.path / name) != note:
                raise SourceError(f"{self.path / name}: the file is damaged: its checksum is another; compile anew")


Write: TypeAlias = Callable[[Path], Contents]
"""Writes the files of a version into an empty folder, and says what they hold."""


def publish(directory: str | os.PathLike[str], write: Write, *, keep: int = KEPT) -> Version:
    """Write a new version, and make it the current one; of the older ones the last `keep - 1` remain."""
    root = _root(directory)
    if keep < 1:
        raise SourceError(f"{root}: keep is {keep}; keep at least 1 version")
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        writing = root / f"{_WRITING}{uuid4().hex}"
        writing.mkdir()
    except OSError as error:
        raise _refusal(root, error) from None
    try:
        contents = write(writing)
        manifest = _sealed(contents, writing)
        (writing / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        _sync_tree(writing)
        with _locked(root):
            number = max(versions(root), default=0) + 1
            os.rename(writing, root / _name(number))
            _sync(root)
            _point(root, number)
            _prune(root, number, keep)
    except OSError as error:
        raise _refusal(root, error) from None
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return Version(str(root), number, manifest)


def add_part(version: Version, name: str, write: Callable[[Path], None]) -> Path:
    """A folder that is made from a version when it is first asked for, and kept with it; half of one is never seen.

    Where the version may not be written to, the folder goes with this process.
    """
    kept = version.path / name
    own = _own_parts().get(kept)
    if own is not None or kept.is_dir():
        return own or kept
    writing = kept.parent / f"{_WRITING}{uuid4().hex}"
    try:
        writing.mkdir(parents=True)
    except OSError:
        own = Path(tempfile.mkdtemp(prefix="meetpoint-part-"))
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        write(own)
        return _own_parts().setdefault(kept, own)
    try:
        write(writing)
        _sync_tree(writing)
        os.rename(writing, kept)
        _sync(kept.parent)
    except OSError as error:
        if not kept.is_dir():  # else another process was first
            raise _refusal(kept, error) from None
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return kept


@cache
def _own_parts() -> dict[Path, Path]:
    """Parts of versions that may not be written to: where they belong, and where they are."""
    return {}


def versions(directory: str | os.PathLike[str]) -> list[int]:
    """The numbers of all whole versions, oldest first."""
    root = _root(directory)
    try:
        return sorted(int(found[1]) for name in os.listdir(root) if (found := _NAME.fullmatch(name)))
    except OSError as error:
        raise _refusal(root, error) from None


def current_number(directory: str | os.PathLike[str]) -> int:
    """The number of the version in force."""
    root = _root(directory)
    try:
        return int((root / _CURRENT).read_text(encoding="ascii"))
    except FileNotFoundError:
        told = "holds no compiled subscriptions" if root.is_dir() else "there is no such directory"
        raise SourceError(f"{root}: {told}; compile some: Subscriptions.compile({str(root)!r})") from None
    except NotADirectoryError:
        raise SourceError(f"{root}: is no directory; give the one that subscriptions were compiled to") from None
    except (OSError, ValueError) as error:
        raise _refusal(root / _CURRENT, error) from None


def current(directory: str | os.PathLike[str]) -> Version:
    """The version in force."""
    while True:
        number = current_number(directory)
        try:
            return open_version(directory, number)
        except SourceError:
            if current_number(directory) == number:  # else it was superseded and went away meanwhile
                raise


def open_version(directory: str | os.PathLike[str], number: int) -> Version:
    """A version by its number; SourceError where it is not there or not as it was published."""
    root = _root(directory)
    path = root / _name(number) / _MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        held = ", ".join(map(str, versions(root))) or "none"
        raise SourceError(f"{root}: there is no version {number}; there are: {held}") from None
    except OSError as error:
        raise _refusal(path, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SourceError(f"{path}: the file is damaged; compile the subscriptions anew") from None
    if manifest.format != FORMAT:
        raise SourceError(f"{path}: the format is {manifest.format}, and this is {FORMAT}; compile anew")
    if manifest.checksum != _checksum(manifest):
        raise SourceError(f"{path}: the file is damaged: its checksum is another; compile the subscriptions anew")
    version = Version(str(root), number, manifest)
    for name, note in manifest.files.items():
        try:
            size = os.path.getsize(version.path / name)
        except OSError as error:
            raise _refusal(version.path / name, error) from None
        if size != note.bytes:
            raise SourceError(f"{version.path / name}: has {size:,} bytes, not {note.bytes:,}; compile anew")
    return version


def hold(directory: str | os.PathLike[str], holder: str) -> Version:
    """The version in force, which stays until this holder holds another; a holder is a name for a file."""
    root = _root(directory)
    current_number(root)  # with its own words where nothing was compiled
    try:
        with _locked(root):
            number = current_number(root)
            (root / _HELD).mkdir(exist_ok=True)
            if _held(root).get(holder) != number:
                _replace(root / _HELD / holder, number)
    except OSError as error:
        raise _refusal(root, error) from None
    return open_version(root, number)


# -- below -------------------------------------------------------------------------------------------------------------


def _root(directory: str | os.PathLike[str]) -> Path:
    text = os.fspath(directory)
    if text.startswith("file:"):
        text = re.sub("^file:(//)?", "", text)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):
        raise SourceError(f"{text}: the index is mapped, which takes a local directory or a mounted one; give its path")
    return Path(text).absolute()


def _name(number: int) -> str:
    return f"v{number:08}"


def _refusal(path: Path, error: Exception) -> SourceError:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return SourceError(f"{path}: {said.lower()}; check the directory")


def _sealed(contents: Contents, folder: Path) -> Manifest:
    files = {str(p.relative_to(folder)): _note(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    manifest = Manifest(
        **msgspec.structs.asdict(contents),
        format=FORMAT,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        files=files,
    )
    return msgspec.structs.replace(manifest, checksum=_checksum(manifest))


def _checksum(manifest: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(manifest, checksum=""))).hexdigest()


def _note(path: Path) -> FileNote:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return FileNote(size, digest.hexdigest())


def _sync_tree(folder: Path) -> None:
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(below, name))
        _sync(Path(below))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _point(root: Path, number: int) -> None:
    _replace(root / _CURRENT, number)


def _replace(path: Path, number: int) -> None:
    """Write a number to a file, at once or not at all."""
    partial = path.parent / f"{_WRITING}{uuid4().hex}"
    try:
        with partial.open("w", encoding="ascii") as file:
            file.write(f"{number}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    _sync(path.parent)


def _held(root: Path) -> dict[str, int]:
    """Who holds which version."""
    if not (root / _HELD).is_dir():
        return {}
    files = (path for path in (root / _HELD).iterdir() if not path.name.startswith(_WRITING))
    return {path.name: int(path.read_text(encoding="ascii")) for path in files}


def _prune(root: Path, number: int, keep: int) -> None:
    held = set(_held(root).values())
    for old in versions(root):
        if old <= number - keep and old not in held:
            gone = root / f"{_WRITING}{uuid4().hex}"
            os.rename(root / _name(old), gone)
            shutil.rmtree(gone, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove what publishers left that died long ago."""
    for left in root.glob(f"{_WRITING}*"):
        try:
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        except OSError:
            continue  # another publisher sweeps too


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    with (root / _LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
