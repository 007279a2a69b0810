"""What a stream does with one batch, exactly once however often it is run.

Spark numbers the batches and runs one after the other; after a crash it runs the last one again, with the same events.
What a batch does, in this order:

1. A batch that the log calls complete is not touched again.
2. It is pinned to a version of the subscriptions, by a note beside Spark's checkpoint that is written before anything
   else. A replay finds the note and takes that version, whatever was published meanwhile; the version is held in its
   directory until the next batch.
3. Its rows are checked against the schema and cached, so that the source is read once; dead letters are written, then
   hits, each to its own `batch_id=N`, which a replay overwrites.
4. What it came to is logged, which makes it complete. Then Spark commits it.

A kill at any point therefore loses nothing and repeats nothing. See `streaming.batches` for what readers see.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
from pyspark.sql import functions as F  # noqa: N812

from meetpoint.errors import MeetpointError
from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark.matching.job import match
from meetpoint.spark.streaming.batches import Batch, Folder, Table
from meetpoint.spark.subscriptions import store
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.subscriptions.subscriptions import Subscriptions
from meetpoint.spark.validation import DEAD_COLUMNS, Validated

__all__ = ["Options", "Work", "check_ids"]

_log = logging.getLogger("meetpoint.spark")


class Options(TypedDict):
    """Those of `match`."""

    strategy: str
    result: str
    missing: str
    on_bad: str
    ship: str


class Work(msgspec.Struct, frozen=True):
    """What is done with a batch, by the driver; it is pickled where that is a server of Spark Connect."""

    stream: str
    directory: str
    id_type: str
    pins: Folder
    hits: Table
    dead: Table | None
    options: Options

    def __call__(self, rows: Any, number: int) -> None:
        running = rows.sparkSession
        log = self.hits.log(number)
        pin = self._pin(number).get(running)
        if pin is not None and pin["batch"] != number:
            pin = None  # an earlier batch's
        if pin is not None and log.get(running) is not None:
            _log.info("stream: batch %s is complete already", number)
            return
        started, clock = datetime.now(UTC), time.perf_counter()
        rows = rows.persist()
        try:
            events, letters = rows, None
            if self.dead is not None:
                is_dead = F.col("reason").isNotNull()
                events, letters = rows.where(~is_dead).select("event.*"), rows.where(is_dead).select(*DEAD_COLUMNS)
            version, hits = self._matched(running, events, number, pin)
            if self.dead is None:
                counts = {"in": rows.count(), "dead": 0}
            else:
                counts = Validated(events, letters, rows).counts()
                if counts["dead"] or pin is not None:  # a run that was cut short may have left some
                    self._check_rows(number, "dead letters", self.dead.write(letters, number), counts["dead"])
            written = self.hits.write(hits, number)
            good = counts["in"] - counts["dead"]
            if self.options["result"] == "lists":
                self._check_rows(number, "lists", written, good)
        finally:
            rows.unpersist()
        seconds = round(time.perf_counter() - clock, 3)
        batch = Batch(
            number,
            version,
            counts["in"],
            good,
            counts["dead"],
            written,
            started.isoformat("T", "milliseconds"),
            seconds,
        )
        log.put(running, batch)
        _log.info("stream: %s", batch)

    def is_running(self, running: Any) -> bool:
        """Whether a batch was begun that is not complete."""
        begun = self.last_pinned(running)
        return begun is not None and self.hits.log(begun).get(running) is None

    def last_pinned(self, running: Any) -> int | None:
        pins = (self._pin(number).get(running) for number in range(2))
        return max((pin["batch"] for pin in pins if pin is not None), default=None)

    def _pin(self, number: int) -> Folder:
        """Where a batch is pinned: two places serve, since only the last batch is ever run again."""
        return self.pins.below(str(number % 2))

    def _matched(self, running: Any, events: Any, number: int, pin: dict[str, Any] | None) -> tuple[int, Any]:
        """The version that a batch is pinned to, now if it is not yet, and its hits."""
        if pin is not None:
            version = self._pinned(pin)
            return version.number, self._match(running, events, version)
        version = self._current()
        hits = self._match(running, events, version)  # before the pin: a version that does not fit is not pinned
        note = {"batch": number, "version": version.number, "checksum": version.manifest.checksum}
        self._pin(number).put(running, note)
        return version.number, hits

    def _match(self, running: Any, events: Any, version: Version) -> Any:
        check_ids(version, self.id_type)
        return match(events, Subscriptions.open(self.directory, version.number, running), **self.options)

    def _current(self) -> Version:
        try:
            return store.hold(self.directory, self.stream)
        except SourceError as error:
            version = store.current(self.directory)  # or its own words, where there is none
            _log.warning("stream: version %s cannot be held, and may go while it is used: %s", version.number, error)
            return version

    def _pinned(self, pin: dict[str, Any]) -> Version:
        number, batch = pin["version"], pin["batch"]
        try:
            version = store.open_version(self.directory, number)
        except SourceError as error:
            told = str(error)
        else:
            if version.manifest.checksum == pin["checksum"]:
                return version
            told = f"{self.directory}: version {number} is another one now"
        raise SourceError(
            f"batch {batch} was begun with version {number}, and its replay needs it: {told}; restore it, or remove "
            f"{self._pin(batch).path} to match the batch with the current version"
        )

    def _check_rows(self, number: int, what: str, written: int, counted: int) -> None:
        if written != counted:
            raise MeetpointError(
                f"batch {number}: {counted:,} {what} were counted and {written:,} written; the source must give the "
                "same rows when it is read again"
            )


def check_ids(version: Version, id_type: str) -> None:
    found = version.manifest.id_type
    if found != id_type:
        raise MeetpointError(
            f"subscriptions: the ids of version {version.number} are of type {found}, and the stream's are {id_type}; "
            "cast them, or start another stream"
        )
