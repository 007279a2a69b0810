"""An index in one file, which is mapped, so that processes on one machine share one copy.

The file begins with a fixed line and the lengths of what follows; a header (msgpack) names every array with its type,
shape and place; arrays are aligned to 64 bytes. Header and arrays each have a checksum, and both are checked when the
file is opened. Files are written beside their target and renamed, so that a reader never sees half of one.
"""

from __future__ import annotations

import os
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.language.filters.like import Pattern
from meetpoint.matching.index.encoder import Encoder, build_grams
from meetpoint.matching.index.ids import arrow_ids
from meetpoint.matching.index.kernels.bucket_scan import Buckets, Sides
from meetpoint.matching.index.layout import BucketTables, Layout
from meetpoint.matching.index.lines import Array, LineKey, LineSort, RankLine
from meetpoint.matching.index.rank_form import PackedRankForm
from meetpoint.matching.index.segment import EventSample, Segment
from meetpoint.matching.tables.columns import ColumnPart, PartSort

__all__ = ["VERSION", "load", "save"]

VERSION = 2
_MAGIC = b"meetpoint index\n"
_ALIGN = 64
_CHUNK = 1 << 24
_LINE_ARRAYS = ("values", "after", "offsets", "data")
_GROUPS: tuple[tuple[str, Any], ...] = (("Access", BucketTables), ("Buckets", Buckets), ("Sides", Sides))
"""The groups of arrays of a layout, and their names in files."""


class _ArrayPlace(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    shape: tuple[int, ...]
    offset: int


class _LineHead(msgspec.Struct, frozen=True, array_like=True):
    attribute: str
    sort: int
    exact: tuple[str, ...]
    exact_after: tuple[bool, ...]


class _SegmentHead(msgspec.Struct, frozen=True):
    subscriptions: int
    lines: list[_LineHead]
    patterns: list[tuple[str, tuple[bytes, ...]]]
    multiple: bool
    types: dict[str, tuple[str, int]]


class _PartHead(msgspec.Struct, frozen=True, array_like=True):
    attribute: str
    sort: str
    scale: int
    exact: list[str] | None


class _Head(msgspec.Struct, frozen=True):
    segments: list[_SegmentHead]
    arrays: dict[str, _ArrayPlace]
    sample_events: int
    sample_guessed: bool
    sample: list[_PartHead]
    checksum: int


class _Writer:
    """A writer of arrays by name, one behind the other."""

    def __init__(self) -> None:
        self.places: dict[str, _ArrayPlace] = {}
        self.arrays: list[Array] = []
        self.size = 0

    def put(self, name: str, array: Array) -> None:
        array = np.ascontiguousarray(array)
        self.places[name] = _ArrayPlace(array.dtype.str, array.shape, self.size)
        self.arrays.append(array)
        self.size += -(-array.nbytes // _ALIGN) * _ALIGN

    def chunks(self) -> Any:
        for array in self.arrays:
            yield array.reshape(-1).view(np.uint8).data
            yield bytes(-array.nbytes % _ALIGN)


def save(path: str, held: list[tuple[Segment, Any, Array, Array | None]], sample: EventSample | None) -> None:
    """Write segments with their ids."""
    writer = _Writer()
    heads = [_put_segment(writer, f"{number}/", *parts) for number, parts in enumerate(held)]
    sample_heads = [] if sample is None else _put_sample(writer, sample)
    checksum = 0
    for chunk in writer.chunks():
        checksum = zlib.crc32(chunk, checksum)
    head = msgspec.msgpack.encode(
        _Head(
            heads,
            writer.places,
            sample.events if sample else 0,
            bool(sample and sample.guessed),
            sample_heads,
            checksum,
        )
    )
    start = len(_MAGIC) + 24
    begin = -(-(start + len(head)) // _ALIGN) * _ALIGN
    partial = f"{path}.{uuid4().hex}.partial"
    try:
        with open(partial, "xb") as file:
            file.write(_MAGIC)
            for number in (VERSION, len(head), zlib.crc32(head)):
                file.write(number.to_bytes(8, "little"))
            file.write(head)
            file.write(bytes(begin - start - len(head)))
            for chunk in writer.chunks():
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())  # else a power cut after the rename may leave a file without contents
        os.replace(partial, path)
    except OSError as error:
        raise MeetpointError(f"{path}: {(error.strerror or str(error)).lower()}; check the folder") from None
    finally:
        Path(partial).unlink(missing_ok=True)


def _put_segment(
    writer: _Writer, prefix: str, segment: Segment, ids: Any, serials: Array, orders: Array | None
) -> _SegmentHead:
    rows = segment.rows if segment.rows.compressed else PackedRankForm.of(segment.rows.unpacked())
    for name, packed in rows.data.items():
        writer.put(f"{prefix}rows/{name}", packed)
    lines = []
    for number, line in enumerate(rows.lines):
        for name in _LINE_ARRAYS:
            writer.put(f"{prefix}line/{number}/{name}", getattr(line, name))
        lines.append(_LineHead(line.key.attribute, int(line.key.sort), tuple(map(str, line.exact)), line.exact_after))
    groups: tuple[Any, ...] = segment.layout
    for (stored, _), group in zip(_GROUPS, groups, strict=True):
        for name, array in zip(group._fields, group, strict=True):
            writer.put(f"{prefix}{stored}/{name}", array)
    writer.put(f"{prefix}serials", serials)
    if orders is not None:
        writer.put(f"{prefix}orders", orders)
    writer.put(f"{prefix}ids", _ids_as_bytes(ids))
    # a pattern's pieces hold lone surrogates for _, which is no text that msgpack writes
    patterns = [(a, tuple(piece.encode("utf-8", "surrogatepass") for piece in p.pieces)) for a, p in rows.patterns]
    return _SegmentHead(rows.subscriptions, lines, patterns, rows.multiple, rows.types)


def _ids_as_bytes(ids: Any) -> Array:
    array = arrow_ids(ids)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("id", array.type)])) as stream:
        stream.write_batch(pa.record_batch([array], names=["id"]))
    return np.frombuffer(sink.getvalue(), np.uint8)


def _put_sample(writer: _Writer, sample: EventSample) -> list[_PartHead]:
    heads: list[_PartHead] = []
    for attribute, parts in sample.parts.items():
        for part in parts:
            prefix = f"sample/{len(heads)}/"
            exact = None
            if part.sort is PartSort.EXACT:
                exact = [str(v) for v in part.values.tolist()]
            else:
                writer.put(f"{prefix}values", part.values)
            for name in ("valid", "starts", "ends"):
                if (array := getattr(part, name)) is not None:
                    writer.put(prefix + name, array)
            heads.append(_PartHead(attribute, part.sort.name, part.scale, exact))
    return heads


# -- opening -----------------------------------------------------------------------------------------------------------


def load(path: str) -> tuple[list[tuple[Segment, Any, Array, Array | None]], EventSample | None]:
    """Map a file that `save` wrote: return its segments with their ids."""
    try:
        whole = np.memmap(path, np.uint8, mode="c")  # private to this process, though nothing is ever written
    except ValueError:
        raise MeetpointError(f"{path}: the file is empty; save the index anew") from None
    except OSError as error:
        raise MeetpointError(f"{path}: {(error.strerror or str(error)).lower()}; check the path") from None
    head, begin = _read_head(path, whole)
    data = whole[begin:]
    size = max((p.offset + _bytes_of(p) for p in head.arrays.values()), default=0)
    if len(data) < size:
        raise MeetpointError(f"{path}: the file is cut short; save the index anew")
    checksum = 0
    for at in range(0, len(data), _CHUNK):
        checksum = zlib.crc32(data[at : at + _CHUNK].data, checksum)
    if checksum != head.checksum:
        raise MeetpointError(f"{path}: the file is damaged: its checksum is another; save the index anew")
    arrays = {name: _array(data, place) for name, place in head.arrays.items()}
    held = [_segment(f"{number}/", one, arrays) for number, one in enumerate(head.segments)]
    return held, _sample(head, arrays)


def _read_head(path: str, whole: Array) -> tuple[_Head, int]:
    start = len(_MAGIC) + 24
    if whole[: len(_MAGIC)].tobytes() != _MAGIC:
        raise MeetpointError(f"{path}: not an index of Meetpoint; give a file that Index.save wrote")
    version, length, checksum = (
        int.from_bytes(whole[at : at + 8].tobytes(), "little") for at in range(len(_MAGIC), start, 8)
    )
    if version != VERSION:
        raise MeetpointError(f"{path}: the index is of version {version}, and this is {VERSION}; build it anew")
    head = whole[start : start + length].tobytes()
    if len(head) < length or zlib.crc32(head) != checksum:
        raise MeetpointError(f"{path}: the file is damaged: its header's checksum is another; save the index anew")
    return msgspec.msgpack.decode(head, type=_Head), -(-(start + length) // _ALIGN) * _ALIGN


def _bytes_of(place: _ArrayPlace) -> int:
    return int(np.prod(place.shape)) * np.dtype(place.dtype).itemsize


def _array(data: Array, place: _ArrayPlace) -> Array:
    flat = data[place.offset : place.offset + _bytes_of(place)].view(np.ndarray)
    return flat.view(place.dtype).reshape(place.shape)


def _segment(prefix: str, head: _SegmentHead, arrays: dict[str, Array]) -> tuple[Segment, Any, Array, Array | None]:
    lines = tuple(
        RankLine(
            LineKey(one.attribute, LineSort(one.sort)),
            exact=tuple(Decimal(text) for text in one.exact),
            exact_after=one.exact_after,
            **{name: arrays[f"{prefix}line/{number}/{name}"] for name in _LINE_ARRAYS},
        )
        for number, one in enumerate(head.lines)
    )
    patterns = tuple(
        (a, Pattern(tuple(piece.decode("utf-8", "surrogatepass") for piece in pieces))) for a, pieces in head.patterns
    )
    data = {name: arrays[f"{prefix}rows/{name}"] for name in head.types}
    rows = PackedRankForm(head.subscriptions, lines, patterns, head.multiple, head.types, data)
    groups: list[Any] = [cls(*(arrays[f"{prefix}{stored}/{name}"] for name in cls._fields)) for stored, cls in _GROUPS]
    encoder = Encoder(lines, build_grams(patterns), len(patterns))
    ids = pa.ipc.open_stream(pa.py_buffer(arrays[f"{prefix}ids"])).read_all()["id"].combine_chunks()
    segment = Segment(rows, Layout(*groups), encoder)
    return segment, ids, arrays[f"{prefix}serials"], arrays.get(f"{prefix}orders")


def _sample(head: _Head, arrays: dict[str, Array]) -> EventSample | None:
    if not head.sample_events:
        return None
    parts: dict[str, list[ColumnPart]] = {}
    for number, one in enumerate(head.sample):
        prefix = f"sample/{number}/"
        if one.exact is None:
            values = arrays[f"{prefix}values"]
        else:
            values = np.empty(len(one.exact), object)
            values[:] = [None if text == "None" else Decimal(text) for text in one.exact]
        arrays_of = {name: arrays.get(prefix + name) for name in ("valid", "starts", "ends")}
        part = ColumnPart(PartSort[one.sort], values=values, scale=one.scale, **arrays_of)
        parts.setdefault(one.attribute, []).append(part)
    return EventSample(parts, head.sample_events, head.sample_guessed)
