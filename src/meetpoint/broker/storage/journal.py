"""The journal of what became of events here. No promise depends on it, so that nothing ever waits for it.

Lines are noted in memory and written by a thread of their own, within a second, in blocks without any index or sync: a
kill loses the last second. A query looks through all blocks for the bytes of an event's key, which is fast enough now
and then, and makes noting as cheap as it can be. Blocks are in segments; the oldest segment is removed when there are
too many lines or bytes. A torn or damaged block is skipped.

block: length (4 bytes), CRC-32 (4 bytes), MessagePack: an array of lines
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from zlib import crc32

import msgspec

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.node.runtime.effects import Trace

__all__ = ["BYTES_MAX", "LINES_MAX", "Journal", "JournalLine"]

LINES_MAX = 200_000
BYTES_MAX = 256 << 20
MEMORY_BYTES_MAX = 16 << 20
"""The same limit for a journal in memory."""
SEGMENTS = 8
WRITE_S = 1.0
PENDING_SOON = 2_000
"""Number of noted lines at which the writer does not wait for its second to be over."""
PENDING_MAX = 50_000
"""Number of noted lines in memory above which the oldest are never written."""
BLOCK_LINES_MAX = 500
BLOCK_BYTES = 256 << 10
"""Size from which a block takes no further line."""

_HEAD = Struct(">II")


class JournalLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of the journal: `effects.Trace` with a time."""

    at_us: int
    event: EventKey
    step: str
    home: HomeId
    names: tuple[str, ...]
    detail: str
    content: bytes


_ENCODER = msgspec.msgpack.Encoder()
_LINES = msgspec.msgpack.Decoder(list[JournalLine])
_FIELDS = msgspec.msgpack.Decoder(list[msgspec.Raw])


class _Segment:
    """A sequence of blocks, in a file or in memory."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines = 0
        self.size = 0
        self._kept: list[bytes] = []

    def append(self, block: bytes, lines: int) -> None:
        if self.path is None:
            self._kept.append(block)
        else:
            with self.path.open("ab") as file:
                if file.tell() > self.size:  # what a write that failed has left
                    file.truncate(self.size)
                file.write(_HEAD.pack(len(block), crc32(block)) + block)
        self.lines += lines
        self.size += _HEAD.size + len(block)

    def blocks(self) -> Iterator[bytes]:
        """Yield the undamaged blocks."""
        if self.path is None:
            yield from self._kept
        else:
            yield from (block for _, block in self._read(self.path) if block is not None)

    def find(self) -> None:
        """Take over the file of an earlier life, up to where it is torn."""
        assert self.path is not None
        for end, block in self._read(self.path):
            self.size = end
            self.lines += len(_decode(block)) if block is not None else 0

    def _read(self, path: Path) -> Iterator[tuple[int, bytes | None]]:
        """Yield blocks and where they end; None for a damaged one."""
        try:
            file = path.open("rb")
        except OSError:
            return
        with file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                length, crc = _HEAD.unpack(head)
                block = file.read(length) if length <= BYTES_MAX else b""
                if not block or len(block) < length:
                    return
                yield file.tell(), block if crc32(block) == crc else None

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Journal:
    """The journal of one broker; in memory where it has no folder."""

    def __init__(self, folder: Path | None, lines_max: int = LINES_MAX) -> None:
        self._folder = folder
        self._lines_max = lines_max
        self._block_lines = max(1, min(BLOCK_LINES_MAX, lines_max // SEGMENTS))
        self._bytes_max = BYTES_MAX if folder else MEMORY_BYTES_MAX
        self._pending: deque[tuple[int, Trace]] = deque(maxlen=PENDING_MAX)
        self._lock = threading.Lock()
        self._soon = threading.Event()
        self._closing = False
        self._next = 1
        self._segments: deque[_Segment] = deque()
        self.dropped = 0
        """Number of lines that were never written: they came too fast, or there was no room."""
        if folder is not None:
            try:
                self._find_segments(folder)
            except OSError:
                self._folder = None  # a journal that lasts as long as the process is better than no broker
        self._thread = threading.Thread(target=self._run, name="meetpoint-journal", daemon=True)
        self._thread.start()

    def note(self, at_us: int, trace: Trace) -> None:
        """Note a line; any thread, and never waits."""
        pending = self._pending
        if len(pending) >= PENDING_SOON:
            self.dropped += len(pending) == pending.maxlen  # the oldest makes room
            if not self._soon.is_set():
                self._soon.set()
        pending.append((at_us, trace))

    def read(self, id: str = "", key: EventKey | None = None) -> list[JournalLine]:  # noqa: A002
        """Return all lines of an event, the oldest first, those just noted too.

        It reads files, and is not for an event loop.
        """
        self._write_pending()
        with self._lock:
            keys = {key} if key is not None else set()
            if id:
                keys |= {line.event for line in self._lines([_ENCODER.encode(id)]) if _id_of(line) == id}
            if not keys:
                return []
            return [line for line in self._lines([_ENCODER.encode(each) for each in keys]) if line.event in keys]

    def close(self) -> None:
        """Write what was noted, and end."""
        self._closing = True
        self._soon.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing:
            self._soon.wait(WRITE_S)
            self._soon.clear()
            self._write_pending()

    def _write_pending(self) -> None:
        with self._lock:
            while self._pending:
                lines = self._take_block()
                try:
                    self._append(_ENCODER.encode(lines), len(lines))
                except OSError:
                    self.dropped += len(lines)

    def _take_block(self) -> list[JournalLine]:
        """Return the oldest lines that wait, as many as a block may have."""
        lines: list[JournalLine] = []
        size = 0
        while self._pending and len(lines) < self._block_lines and size < BLOCK_BYTES:
            at_us, trace = self._pending.popleft()
            size += len(trace.content)
            lines.append(
                JournalLine(at_us, trace.event, trace.step, trace.home, trace.names, trace.detail, trace.content)
            )
        return lines

    def _append(self, block: bytes, lines: int) -> None:
        last = self._segments[-1] if self._segments else None
        if (
            last is None
            or last.lines + lines > self._lines_max // SEGMENTS
            or last.size + len(block) > self._bytes_max // SEGMENTS
        ):
            last = _Segment(self._folder / f"{self._next:012}.log" if self._folder else None)
            self._next += 1
            self._segments.append(last)
        last.append(block, lines)
        while len(self._segments) > 1 and (
            sum(each.lines for each in self._segments) > self._lines_max
            or sum(each.size for each in self._segments) > self._bytes_max
        ):
            self._segments.popleft().remove()

    def _find_segments(self, folder: Path) -> None:
        """Take over the segments of earlier lives."""
        folder.mkdir(exist_ok=True)
        for path in sorted(each for each in folder.glob("*.log") if each.stem.isdecimal()):
            segment = _Segment(path)
            segment.find()
            self._segments.append(segment)
            self._next = int(path.stem) + 1

    def _lines(self, needles: Iterable[bytes]) -> Iterator[JournalLine]:
        """Yield the lines of all blocks that contain any of these bytes."""
        wanted = list(needles)
        for segment in self._segments:
            for block in segment.blocks():
                if any(needle in block for needle in wanted):
                    yield from _decode(block)


def _decode(block: bytes) -> list[JournalLine]:
    try:
        return _LINES.decode(block)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _id_of(line: JournalLine) -> str | None:
    """Return the id of an event that was published here: the first field of its content."""
    try:
        first = _FIELDS.decode(line.content)[0]
        found = msgspec.msgpack.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
        return None
    return found if isinstance(found, str) else None
