"""A directory of compiled subscriptions: numbered versions that never change, and a pointer to the current one.

    alerts/CURRENT                  the number of the current version, replaced by rename
    alerts/v00000001/manifest.json  the content of the version, with a checksum of itself and one of every file
    alerts/v00000001/index.mpx      the index, to be mapped
    alerts/v00000001/filters.parquet, rejected.parquet
    alerts/v00000001/sample.arrow   some of the events that it was compiled with, if there were any
    alerts/v00000001/meeting-1/, shards/  parts that a strategy makes when it is first used
    alerts/held/NAME                the number of the version that a holder needs

A version is written under another name, synced, and renamed, so that an incomplete one is never seen. A reader that has
opened a version keeps it while newer ones are published. One publisher at a time renames and points, under a lock; a
reader needs none. A process that may need a version again after a crash holds it: it is not removed then, however old.
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

from meetpoint.archive.writer import sync_path, write_synced
from meetpoint.matching.io.rejects import SourceError

__all__ = [
    "FILTERS_FILE",
    "INDEX_FILE",
    "REJECTED_FILE",
    "SAMPLE_FILE",
    "SHARDS_FOLDER",
    "VERSIONS_KEPT",
    "AttributeUse",
    "FileDigest",
    "Manifest",
    "Version",
    "VersionContents",
    "add_part",
    "current",
    "current_number",
    "hold",
    "open_version",
    "publish",
    "versions",
]

FORMAT = 1
VERSIONS_KEPT = 10
"""The number of versions that are kept by default."""
INDEX_FILE, FILTERS_FILE, REJECTED_FILE = "index.mpx", "filters.parquet", "rejected.parquet"
SAMPLE_FILE = "sample.arrow"
SHARDS_FOLDER = "shards"

_MANIFEST, _CURRENT, _LOCK, _HELD = "manifest.json", "CURRENT", ".lock", "held"
_WRITING = ".writing-"
_STALE_SECONDS = 24 * 3600
"""The age at which the leftovers of a dead publisher are deleted."""
_NAME = re.compile(r"v(\d{8,})")
_CHUNK = 1 << 24


class AttributeUse(msgspec.Struct, frozen=True):
    """An attribute and the kind that it is compared as (None: only IS NULL), with one filter that does so."""

    attribute: str
    kind: str | None
    id: str | int
    filter: str


class FileDigest(msgspec.Struct, frozen=True):
    """The size of a file, and the hash of its bytes."""

    bytes: int
    sha256: str


class VersionContents(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a version, as its publisher describes it."""

    subscriptions: int
    rejected: int
    first_reason: str | None
    """The reason why the first of the rejected was set aside."""
    id_type: str
    """Spark's name of the type of the ids: string, int, bigint."""
    uses: tuple[AttributeUse, ...]
    """All comparisons of the filters, once each."""


class Manifest(VersionContents, frozen=True, kw_only=True):
    """The content of a version, with the fields that the store adds."""

    format: int
    created: str
    files: dict[str, FileDigest]
    checksum: str = ""


class Version(msgspec.Struct, frozen=True):
    """A version of compiled subscriptions in a directory."""

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
        """A Parquet file with the columns id, filter and subscriber, numbered as in the index."""
        return self.path / FILTERS_FILE

    @property
    def rejected_path(self) -> Path:
        """A Parquet file with the columns row, id, filter and reason."""
        return self.path / REJECTED_FILE

    @property
    def sample_path(self) -> Path:
        """An Arrow file of events, absent where none were given."""
        return self.path / SAMPLE_FILE

    @property
    def shards_path(self) -> Path:
        return self.path / SHARDS_FOLDER

    def verify(self) -> None:
        """Compare the checksum of every file; raise SourceError for the first that was changed."""
        for name, note in self.manifest.files.items():
            if _note(self.path / name) != note:
                raise SourceError(f"{self.path / name}: the file is damaged: its checksum is another; compile anew")


Write: TypeAlias = Callable[[Path], VersionContents]
"""A function that writes the files of a version into an empty folder, and describes them."""


def publish(directory: str | os.PathLike[str], write: Write, *, keep: int = VERSIONS_KEPT) -> Version:
    """Write a new version and make it the current one; of the older ones the last `keep - 1` remain."""
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
            sync_path(root)
            _replace(root / _CURRENT, number)
            _prune(root, number, keep)
    except OSError as error:
        raise _refusal(root, error) from None
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return Version(str(root), number, manifest)


def add_part(version: Version, name: str, write: Callable[[Path], None]) -> Path:
    """Return a folder that is made from a version when it is first needed, and kept with it.

    Readers never see an incomplete one. Where the version may not be written to, the folder is temporary and goes with
    this process.
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
        sync_path(kept.parent)
    except OSError as error:
        if not kept.is_dir():  # else another process has made the same part
            raise _refusal(kept, error) from None
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return kept


@cache
def _own_parts() -> dict[Path, Path]:
    """Return the temporary parts of versions that may not be written to, by the place where they belong."""
    return {}


def versions(directory: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of all complete versions, oldest first."""
    root = _root(directory)
    try:
        return sorted(int(found[1]) for name in os.listdir(root) if (found := _NAME.fullmatch(name)))
    except OSError as error:
        raise _refusal(root, error) from None


def current_number(directory: str | os.PathLike[str]) -> int:
    root = _root(directory)
    try:
        return int((root / _CURRENT).read_text(encoding="ascii"))
    except FileNotFoundError:
        problem = "holds no compiled subscriptions" if root.is_dir() else "there is no such directory"
        raise SourceError(f"{root}: {problem}; compile some: Subscriptions.compile({str(root)!r})") from None
    except NotADirectoryError:
        raise SourceError(f"{root}: is no directory; give the one that subscriptions were compiled to") from None
    except (OSError, ValueError) as error:
        raise _refusal(root / _CURRENT, error) from None


def current(directory: str | os.PathLike[str]) -> Version:
    while True:
        number = current_number(directory)
        try:
            return open_version(directory, number)
        except SourceError:
            if current_number(directory) == number:  # else it was superseded and removed meanwhile
                raise


def open_version(directory: str | os.PathLike[str], number: int) -> Version:
    """Return a version by its number; raise SourceError where it is missing or not as it was published."""
    root = _root(directory)
    path = root / _name(number) / _MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        numbers = ", ".join(map(str, versions(root))) or "none"
        raise SourceError(f"{root}: there is no version {number}; there are: {numbers}") from None
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
    """Return the current version, and keep it until this holder holds another; a holder is a name for a file."""
    root = _root(directory)
    current_number(root)  # before the lock, for a clear error where nothing was compiled
    try:
        with _locked(root):
            number = current_number(root)
            (root / _HELD).mkdir(exist_ok=True)
            if _held(root).get(holder) != number:
                _replace(root / _HELD / holder, number)
    except OSError as error:
        raise _refusal(root, error) from None
    return open_version(root, number)


# -- files and locks ---------------------------------------------------------------------------------------------------


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
    problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return SourceError(f"{path}: {problem.lower()}; check the directory")


def _sealed(contents: VersionContents, folder: Path) -> Manifest:
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


def _note(path: Path) -> FileDigest:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return FileDigest(size, digest.hexdigest())


def _sync_tree(folder: Path) -> None:
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync_path(Path(below, name))
        sync_path(Path(below))


def _replace(path: Path, number: int) -> None:
    """Write a number to a file, atomically."""
    partial = path.parent / f"{_WRITING}{uuid4().hex}"
    try:
        write_synced(partial, b"%d\n" % number)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    sync_path(path.parent)


def _held(root: Path) -> dict[str, int]:
    if not (root / _HELD).is_dir():
        return {}
    files = (path for path in (root / _HELD).iterdir() if not path.name.startswith(_WRITING))
    return {path.name: int(path.read_text(encoding="ascii")) for path in files}


def _prune(root: Path, number: int, keep: int) -> None:
    needed = set(_held(root).values())
    for old in versions(root):
        if old <= number - keep and old not in needed:
            removed = root / f"{_WRITING}{uuid4().hex}"
            os.rename(root / _name(old), removed)
            shutil.rmtree(removed, ignore_errors=True)


def _sweep(root: Path) -> None:
    for left in root.glob(f"{_WRITING}*"):
        try:
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        except OSError:
            continue  # another publisher deletes it too


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    with (root / _LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
