"""Feedback: what it says, its file, and what it is good for."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from meetpoint.errors import LimitError, MeetpointError
from meetpoint.lab.workloads.generator import generate
from meetpoint.lab.workloads.long_form import filter_texts
from meetpoint.language import Kind, clean_attributes, parse_filter
from meetpoint.language.filters.filter import Filter
from meetpoint.matching.index import Index
from meetpoint.matching.keys.feedback import PARTS_MAX, VERSION, Feedback, MeasuredQuantiles
from meetpoint.matching.keys.key_filters import filter_of_key
from meetpoint.matching.keys.key_plan import KeyPlan, Statistics
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.matching.scan import Scan
from tests.workloads import random_events, random_filter

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [{"kind": "rare" if n % 50 == 0 else "usual", "level": n % 5, "note": f"note {n}"} for n in range(1000)]


def made() -> Feedback:
    times = tuple(
        (START - datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=n)) / timedelta(microseconds=1) for n in range(8)
    )
    return Feedback(
        Statistics.of_events(ROWS),
        selectivity={"level": 0.2, "kind": 0.5},
        lines={
            "level": MeasuredQuantiles(
                Kind.NUMBER, tuple(float(n % 5) for n in sorted(range(1000), key=lambda n: n % 5))
            ),
            "o.`odd name`": MeasuredQuantiles(Kind.TIMESTAMP, times),
        },
        sample=pa.Table.from_pylist(ROWS[:100]),
    )


# -- what it says ------------------------------------------------------------------------------------------------------


def test_attributes_come_in_the_order_of_their_selectivity() -> None:
    assert made().attribute_order() == ("level", "kind", "note")  # the note, of which nobody asked anything, is last
    alone = Feedback(Statistics.of_events(ROWS))
    assert alone.attribute_order() == ("note", "level", "kind")


def test_quantiles_cut_values_into_equal_parts() -> None:
    feedback = made()
    assert feedback.quantiles("level", 5) == [1.0, 2.0, 3.0, 4.0]
    assert feedback.quantiles("level", 2) == [2.0]
    assert feedback.quantiles("level", 1) == []
    assert feedback.quantiles("o.`odd name`", 4) == [START + timedelta(hours=n) for n in (2, 4, 6)]
    assert len(feedback.quantiles("level", PARTS_MAX)) == PARTS_MAX - 1


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("level", 0, "quantiles of level: 0 parts; ask for 1 to 1024"),
        ("level", PARTS_MAX + 1, "1025 parts"),
        ("kind", 4, "quantiles of kind: no numbers or timestamps .* they are known of level, o.`odd name`"),
        ("o.", 4, "quantiles: .*; write a name like price"),
    ],
)
def test_quantiles_that_are_not_known_are_refused(name: str, parts: int, message: str) -> None:
    with pytest.raises(MeetpointError, match=message):
        made().quantiles(name, parts)


# -- its file ----------------------------------------------------------------------------------------------------------


def test_a_file_says_what_was_saved(tmp_path: Path) -> None:
    made().save(tmp_path / "feedback")
    read = Feedback.load(tmp_path / "feedback")
    assert read == made()
    assert read.statistics == Statistics.of_events(ROWS)
    assert read.events == 1000
    assert read.sample == pa.Table.from_pylist(ROWS[:100])
    assert read.quantiles("level", 5) == made().quantiles("level", 5)
    assert [path.name for path in tmp_path.iterdir()] == ["feedback"]
    assert Feedback(Statistics(0, {})).sample is None
    made().save(tmp_path / "feedback")  # over the one that is there


def test_a_file_is_read_without_spark_and_without_arrow(tmp_path: Path) -> None:
    made().save(tmp_path / "feedback")
    script = (
        "import sys\nfrom meetpoint.matching.keys.feedback import Feedback\n"
        "from meetpoint.matching.keys.key_plan import KeyPlan\n"
        "feedback = Feedback.load(sys.argv[1]); KeyPlan(feedback.statistics); feedback.attribute_order()\n"
        "assert not {'pyspark', 'pyarrow', 'numpy'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "feedback")], check=True)


def with_body(body: bytes, version: int = VERSION) -> bytes:
    numbers = (version, len(body), zlib.crc32(body))
    return made().to_bytes()[:19] + b"".join(number.to_bytes(8, "little") for number in numbers) + body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a feedback file of Meetpoint"),
        (b"PAR1 something else, and long enough to be one", "not a feedback file of Meetpoint; give one that"),
        (made().to_bytes()[:19], "cut short; measure anew"),
        (made().to_bytes()[:-1], "cut short; measure anew"),
        (made().to_bytes() + b"x", "damaged: its checksum is another"),
        (made().to_bytes()[:-1] + b"\xff", "damaged: its checksum is another"),
        (with_body(b"", VERSION + 1), "of version 2, and this reads 1; update Meetpoint"),
        (with_body(b"", 0), "of version 0, and this reads 1; measure anew"),
        (with_body(b"\x80"), "holds something else than feedback: .*; measure anew"),
    ],
)
def test_what_is_no_whole_file_of_ours_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "feedback"
    path.write_bytes(data)
    with pytest.raises(MeetpointError, match=rf"feedback: .*{message}") as caught:
        Feedback.load(path)
    assert "\n" not in str(caught.value)


def test_a_path_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(MeetpointError, match=r"none: no such file or directory; check the path"):
        Feedback.load(tmp_path / "none")
    with pytest.raises(MeetpointError, match=r"deep/none: no such file or directory; check the folder"):
        made().save(tmp_path / "deep" / "none")


# -- what it is good for -----------------------------------------------------------------------------------------------


def candidates(plan: KeyPlan, filters: list[Filter], rows: list[Any]) -> int:
    """How many pairs a plan makes meet."""
    uses = Counter(key for filter_ in filters for key in plan.keys_of_filter(filter_))
    return sum(uses[key] for row in rows for key in plan.keys_of_event(row) if key in uses)


@pytest.mark.slow
@pytest.mark.parametrize("mix", ["ticks", "skewed", "sparse"])
def test_with_feedback_fewer_pairs_meet_and_the_same_match(mix: str, tmp_path: Path) -> None:
    workload = generate(mix, 300, 2800, 9)
    named = [(number, parse_filter(text)) for number, text in filter_texts(workload)]
    seen, rows = workload.events.slice(0, 2700), [clean_attributes(r) for r in workload.events.slice(2700).to_pylist()]
    Feedback(Statistics.of_events(seen.to_pylist()), sample=seen.slice(0, 2000)).save(tmp_path / "feedback")
    feedback = Feedback.load(tmp_path / "feedback")

    filters = [filter_ for _, filter_ in named]
    without, plan = KeyPlan(), KeyPlan(feedback.statistics)
    assert candidates(plan, filters, rows) < 0.75 * candidates(without, filters, rows)

    scan: Scan[int] = Scan()
    for number, filter_ in named:
        scan.add(number, filter_)
    expected = [sorted(answer) for answer in scan.match_batch(rows)]
    index = Index.from_filters(named, sample=feedback.sample)
    assert [sorted(answer) for answer in index.match_batch(rows)] == expected
    live = plan.live(key for filter_ in filters for key in plan.keys_of_filter(filter_))
    filed: dict[MeetKey, list[int]] = {}
    for number, filter_ in named:
        for key in plan.keys_of_filter(filter_):
            filed.setdefault(key, []).append(number)
    for row, answer in zip(rows, expected, strict=True):
        met = [number for key in live.keys_of_event(row) for number in filed[key]]
        assert sorted(number for number in met if filters[number].accepts(row)) == answer


# -- keys as filters ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_filter_of_a_key_accepts_the_events_that_have_it() -> None:
    rng = random.Random(61)
    rows = [clean_attributes(event) for event in random_events(rng, 200)]
    known = KeyPlan(names=["s", "i", "f", "t", "o.x", "o"])
    keys: set[MeetKey] = set()
    for plan in (known, KeyPlan(Statistics.of_events(rows), names=known.names)):
        for _ in range(1500):
            try:
                keys.update(plan.keys_of_filter(parse_filter(random_filter(rng))))
            except LimitError:
                continue
    ordered = sorted(keys)
    assert {key.sort for key in ordered} == set(KeySort)
    filters = [filter_of_key(key) for key in ordered]
    held = [known.keys_of_event(row) for row in rows]
    expected = [[number for number, key in enumerate(ordered) if key in mine] for mine in held]
    assert [[n for n, filter_ in enumerate(filters) if filter_.accepts(row)] for row in rows] == expected
    assert Index.from_filters(enumerate(filters)).match_batch(rows) == expected


@pytest.mark.parametrize(("name", "wanted"), [("a" * 64, ["whole"]), ("a" * 65, ["whole", "longer"])])
def test_the_filter_of_a_long_value_accepts_its_beginning(name: str, wanted: list[str]) -> None:
    key = KeyPlan().keys_of_filter(parse_filter(f"s = '{name}'"))[0]
    events = {"whole": name, "longer": name + "b", "other": "b" + name}
    assert [which for which, text in events.items() if filter_of_key(key).accepts({"s": text})] == wanted
