"""What a query is about to publish, on the driver's disk: so that a driver that dies at any moment repeats nothing.

    FOLDER/lock                 held by the process that publishes; the one of a killed driver may live a little longer
    FOLDER/state.json           whose folder it is, the last batch that is done, and the next sequence number
    FOLDER/batch-N.msgpack      the events of a batch that is not done, and the number of its first one

A batch is what is in its file, whatever Spark computes when it runs it again: the first file that was whole counts.
Files appear by a rename, when they are on disk.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from meetpoint.errors import MeetpointError

__all__ = ["Batch", "Staging", "State", "write_whole"]

FORMAT: Final = 1
LOCK_PAUSE_S: Final = 0.1
_ELSEWHERE: Final = "name a folder of this query's own (option staging)"

S = TypeVar("S", bound=msgspec.Struct)


class State(msgspec.Struct, frozen=True):
    """How far a query has come."""

    name: str
    """What the query calls itself."""
    publisher: str
    """And what its events say: no other query ever has the same, so that no other has its numbers."""
    query: str = ""
    """Spark's id of the query, where its checkpoint tells it."""
    done: int = -1
    next: int = 1
    """The sequence number of the next batch's first event."""
    format: int = FORMAT


class Batch(msgspec.Struct, frozen=True):
    """The events of a batch, without the numbers that they get: the first has number `first`, the others follow."""

    number: int
    first: int
    events: list[bytes]
    """Empty bytes in the place of one that brokers refused."""
    dead: list[str] = []
    """Rows that become dead letters, one JSON object each."""


class Staging:
    """A folder of one query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self, within_s: float) -> Iterator[None]:
        """Be the only process that publishes from here."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / "lock").open("w")
        except OSError as error:
            raise _refusal(self.folder, error) from None
        with file:
            until = time.monotonic() + within_s
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise MeetpointError(
                            f"{self.folder}: another process publishes from here for more than {within_s:g} s; "
                            f"stop the other query, or {_ELSEWHERE}"
                        ) from None
                    time.sleep(LOCK_PAUSE_S)
            yield

    def state(self, name: str, query: str) -> State:
        """How far it is; MeetpointError where the folder is another's."""
        state = self._read(self.folder / "state.json", State)
        if state is None:
            state = State(name, f"batch/{name}-{secrets.token_hex(6)}", query)
            self.put_state(state)
        if state.format != FORMAT:
            raise MeetpointError(f"{self.folder}: has format {state.format}, and this is {FORMAT}; update the older")
        if state.name != name:
            raise MeetpointError(f"{self.folder}: belongs to publisher {state.name}, not to {name}; {_ELSEWHERE}")
        if query and state.query and state.query != query:
            raise MeetpointError(f"{self.folder}: belongs to another query, with another checkpoint; {_ELSEWHERE}")
        return state

    def batch(self, number: int) -> Batch | None:
        """A batch that is not done, if its file is there."""
        return self._read(self._path(number), Batch)

    def put_batch(self, batch: Batch) -> None:
        """Keep a batch."""
        write_whole(self._path(batch.number), msgspec.msgpack.encode(batch))

    def put_state(self, state: State) -> None:
        """It has come so far; batches that are done by that go."""
        write_whole(self.folder / "state.json", msgspec.json.encode(state))
        for path in self.folder.glob("batch-*.msgpack"):
            said = path.stem.removeprefix("batch-")
            if said.isdigit() and int(said) <= state.done:
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"batch-{number}.msgpack"

    def _read(self, path: Path, type_: type[S]) -> S | None:
        try:
            held = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refusal(path, error) from None
        try:
            if path.suffix == ".json":
                return msgspec.json.decode(held, type=type_)
            return msgspec.msgpack.decode(held, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise MeetpointError(f"{path}: is damaged; put back a copy of it") from None


def write_whole(path: Path, content: bytes) -> None:
    """Put a file into its place, whole and on disk."""
    partial = path.with_name(f".{path.name}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise _refusal(path, error) from None


def _refusal(path: Path, error: OSError) -> MeetpointError:
    said = (error.strerror or str(error)).lower()
    return MeetpointError(f"{path}: {said}; give a folder of the driver's machine that it may write to")
