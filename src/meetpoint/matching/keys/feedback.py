"""Feedback: measurements of many events, in a small file for matchers and brokers that have not seen them.

`meetpoint.spark.measure` makes it. A matcher files filters by it (`Index.from_filters(…, sample=feedback.sample)`), a
broker makes its key plan of it (`KeyPlan(feedback.statistics)`), asks for attributes in the order of their selectivity,
and spreads values over nodes by their quantiles. None of it changes an answer, only how much work an answer takes.

The file begins with a fixed line, its version, the length and the checksum of what follows. It is written beside its
target and renamed, so that a reader never sees half of one. Reading it needs neither Spark nor, except for the sample,
Arrow.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.language.timestamps import EPOCH
from meetpoint.language.values import Kind
from meetpoint.matching.keys.meet_keys import canonical_name
from meetpoint.matching.keys.statistics import AttributeStatistics, Frequencies, Statistics

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PARTS_MAX", "VERSION", "Feedback", "MeasuredQuantiles"]

VERSION = 1
PARTS_MAX = 1024
"""Parts of equally many values into which quantiles cut an attribute."""
_MAGIC = b"meetpoint feedback\n"
_HEAD = len(_MAGIC) + 24


class MeasuredQuantiles(msgspec.Struct, frozen=True):
    """Values in order (timestamps as microseconds since 1970); each stands for equally many values of events."""

    kind: Kind
    values: tuple[float, ...]


class _Body(msgspec.Struct, frozen=True):
    statistics: Statistics
    selectivity: dict[str, float]
    lines: dict[str, MeasuredQuantiles]
    sample: bytes


class Feedback:
    """Measurements: shares of keys, selectivity of attributes, quantiles, and some of the events.

    `selectivity` is the share of events that satisfy a constraint on an attribute, on average over the constraints that
    subscriptions have on it; empty if no subscriptions were measured.
    """

    def __init__(
        self,
        statistics: Statistics,
        *,
        selectivity: Mapping[str, float] | None = None,
        lines: Mapping[str, MeasuredQuantiles] | None = None,
        sample: pa.Table | None = None,
    ) -> None:
        self.statistics = statistics
        self.selectivity = dict(selectivity or {})
        self._lines = dict(lines or {})
        self._sample = b"" if sample is None else _table_bytes(sample)

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def events(self) -> int:
        """The number of events that were measured."""
        return self.statistics.rows

    @property
    def sample(self) -> pa.Table | None:
        """Some of the events, as an Arrow table; None if none were kept."""
        if not self._sample:
            return None
        import pyarrow as pa

        return pa.ipc.open_stream(self._sample).read_all()

    def attribute_order(self) -> tuple[str, ...]:
        """Return the attributes, the most selective first.

        Attributes that subscriptions constrain come first, by what was measured; then the others, by how likely it is
        that two events hold the same value.
        """
        likely = {name: _likeness(held) for name, held in self.statistics.attributes.items() if held.kinds}
        others = [(share, name) for name, share in likely.items() if name not in self.selectivity]
        measured = [(share, name) for name, share in self.selectivity.items()]
        return tuple(name for _, name in [*sorted(measured), *sorted(others)])

    def quantiles(self, name: str, parts: int) -> list[float] | list[datetime]:
        """Return the values between parts of equally many values of an attribute: one fewer than parts.

        They are numbers, or timestamps, in order; a common value may be there several times. NaN is not counted.
        """
        if not 1 <= parts <= PARTS_MAX:
            raise MeetpointError(f"quantiles of {name}: {parts} parts; ask for 1 to {PARTS_MAX}")
        line = self._lines.get(_canonical(name))
        if line is None:
            raise MeetpointError(
                f"quantiles of {name}: no numbers or timestamps were measured there; they are known of "
                f"{', '.join(sorted(self._lines)) or 'no attribute'}"
            )
        cuts = list(_cut(line.values, parts))
        if line.kind is Kind.TIMESTAMP:
            return [EPOCH + timedelta(microseconds=cut) for cut in cuts]
        return cuts

    def cuts(self, parts: int) -> dict[str, MeasuredQuantiles]:
        """Return the quantiles of all attributes with numbers or timestamps; timestamps as microseconds."""
        held = {name: line for name, line in sorted(self._lines.items()) if line.values}
        return {
            name: MeasuredQuantiles(
                line.kind, tuple(line.values[part * len(line.values) // parts] for part in range(1, parts))
            )
            for name, line in held.items()
        }

    # -- its file ------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the contents of the file; equal feedback has equal bytes."""
        body = msgspec.msgpack.encode(_Body(self.statistics, self.selectivity, self._lines, self._sample))
        numbers = (VERSION, len(body), zlib.crc32(body))
        return _MAGIC + b"".join(number.to_bytes(8, "little") for number in numbers) + body

    @staticmethod
    def from_bytes(data: bytes, name: str = "feedback") -> Feedback:
        """Return the feedback of bytes: the inverse of `to_bytes`. Errors call the bytes by a name."""
        if data[: len(_MAGIC)] != _MAGIC:
            raise MeetpointError(f"{name}: not a feedback file of Meetpoint; give one that Feedback.save wrote")
        version, length, checksum = (int.from_bytes(data[at : at + 8], "little") for at in range(len(_MAGIC), _HEAD, 8))
        if len(data) < _HEAD:
            raise MeetpointError(f"{name}: the file is cut short; measure anew")
        if version != VERSION:
            next_step = "update Meetpoint, or measure with this one" if version > VERSION else "measure anew"
            raise MeetpointError(f"{name}: the feedback is of version {version}, and this reads {VERSION}; {next_step}")
        body = data[_HEAD:]
        if len(body) < length:
            raise MeetpointError(f"{name}: the file is cut short; measure anew")
        if len(body) > length or zlib.crc32(body) != checksum:
            raise MeetpointError(f"{name}: the file is damaged: its checksum is another; measure anew")
        try:
            stored = msgspec.msgpack.decode(body, type=_Body)
        except msgspec.DecodeError as error:
            raise MeetpointError(
                f"{name}: the file holds something else than feedback: {error}; measure anew"
            ) from None
        made = Feedback(stored.statistics, selectivity=stored.selectivity, lines=stored.lines)
        made._sample = stored.sample
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, in one step."""
        where = os.fspath(path)
        partial = Path(f"{where}.{uuid4().hex}.partial")
        try:
            with partial.open("xb") as file:
                file.write(self.to_bytes())
                file.flush()
                os.fsync(file.fileno())  # else a power cut after the rename may leave a file without contents
            partial.replace(where)
        except OSError as error:
            raise MeetpointError(f"{where}: {(error.strerror or str(error)).lower()}; check the folder") from None
        finally:
            partial.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Feedback:
        """Return the feedback of a file; the whole file is checked."""
        where = os.fspath(path)
        try:
            data = Path(where).read_bytes()
        except OSError as error:
            raise MeetpointError(f"{where}: {(error.strerror or str(error)).lower()}; check the path") from None
        return Feedback.from_bytes(data, where)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Feedback) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # it is compared, never looked up


def _cut(values: Sequence[float], parts: int) -> tuple[float, ...]:
    return tuple(values[part * len(values) // parts] for part in range(1, parts))


def _canonical(name: str) -> str:
    try:
        return canonical_name(name)
    except ValueError as error:
        raise MeetpointError(f"quantiles: {error}; write a name like price, order.price or `odd name`") from None


def _likeness(held: AttributeStatistics) -> float:
    """Return how likely it is that two events hold the same value of an attribute."""
    kinds: list[Frequencies[int] | Frequencies[str]] = [line.values for line in held.lines.values()]
    if held.text is not None:
        kinds.append(held.text.values)
    same = sum(share * share for values in kinds for share in values.common.values())
    rest = held.there - sum(share for values in kinds for share in values.common.values())
    return same + max(rest, 0.0) * max((values.other for values in kinds), default=0.0)


def _table_bytes(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
