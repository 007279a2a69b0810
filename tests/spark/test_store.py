"""The directory of versions. It needs no Spark, but for the process that is killed at random moments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark.subscriptions import store
from meetpoint.spark.subscriptions.store import INDEX_FILE, AttributeUse, Version, VersionContents


def contents(subscriptions: int = 1) -> VersionContents:
    use = AttributeUse("price", "number", "ann", "price > 1")
    return VersionContents(subscriptions=subscriptions, rejected=0, first_reason=None, id_type="string", uses=(use,))


def writer(text: str, subscriptions: int = 1) -> Callable[[Path], VersionContents]:
    def write(folder: Path) -> VersionContents:
        (folder / INDEX_FILE).write_text(text)
        (folder / "shards").mkdir()
        (folder / "shards" / "0.mpx").write_text(text[::-1])
        return contents(subscriptions)

    return write


def publish(directory: Path, text: str = "index", **options: int) -> Version:
    return store.publish(directory, writer(text), **options)


def test_a_published_version_is_current_and_says_what_it_holds(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "alerts"
    version = publish(directory, "some index")
    assert version == store.current(directory) == store.open_version(directory, 1)
    assert version.index_path.read_text() == "some index"
    assert version.index_bytes == 10
    assert version.manifest.uses == contents().uses
    assert set(version.manifest.files) == {INDEX_FILE, "shards/0.mpx"}
    version.verify()


def test_versions_are_numbered_and_older_ones_stay_as_they_were(tmp_path: Path) -> None:
    first, second = publish(tmp_path, "one"), publish(tmp_path, "two")
    assert (first.number, second.number) == (1, 2)
    assert store.current(tmp_path) == second
    assert store.open_version(tmp_path, 1).index_path.read_text() == "one"


def test_only_the_last_versions_are_kept(tmp_path: Path) -> None:
    for number in range(5):
        publish(tmp_path, str(number), keep=2)
    assert store.versions(tmp_path) == [4, 5]
    assert sorted(os.listdir(tmp_path)) == [".lock", "CURRENT", "v00000004", "v00000005"]
    publish(tmp_path, keep=1)
    assert store.versions(tmp_path) == [6]
    with pytest.raises(SourceError, match="keep is 0; keep at least 1"):
        publish(tmp_path, keep=0)


def test_a_version_that_fails_half_way_leaves_no_trace(tmp_path: Path) -> None:
    publish(tmp_path)

    def fail(folder: Path) -> VersionContents:
        (folder / INDEX_FILE).write_text("half of")
        raise RuntimeError("the disk is on fire")

    with pytest.raises(RuntimeError, match="on fire"):
        store.publish(tmp_path, fail)
    assert sorted(os.listdir(tmp_path)) == [".lock", "CURRENT", "v00000001"]
    assert store.current(tmp_path).number == 1


def test_a_version_that_was_never_pointed_to_is_not_current_and_its_number_is_not_used_again(tmp_path: Path) -> None:
    publish(tmp_path, "one")
    publish(tmp_path, "two")
    (tmp_path / "CURRENT").write_text("1\n")  # as if the publisher had died between the rename and the pointer
    assert store.current(tmp_path).number == 1
    assert publish(tmp_path).number == 3
    assert store.current(tmp_path).number == 3


def test_what_a_dead_publisher_left_is_swept_once_it_is_old(tmp_path: Path) -> None:
    publish(tmp_path)
    old, young = tmp_path / ".writing-old", tmp_path / ".writing-young"
    for left in (old, young):
        left.mkdir()
        (left / INDEX_FILE).write_text("half")
    os.utime(old, (0, time.time() - 2 * 24 * 3600))
    publish(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)
    assert store.versions(tmp_path) == [1, 2]


def test_many_publishers_at_once_get_a_number_each_and_the_last_is_current(tmp_path: Path) -> None:
    threads = [threading.Thread(target=publish, args=(tmp_path, str(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.versions(tmp_path) == list(range(1, 9))
    assert store.current(tmp_path).number == 8
    texts = {store.open_version(tmp_path, n).index_path.read_text() for n in range(1, 9)}
    assert texts == {str(n) for n in range(8)}


PUBLISH_FOR_EVER = """
import sys
from tests.spark.test_store import publish
from pathlib import Path

print("go", flush=True)
while True:
    publish(Path(sys.argv[1]), "x" * 300_000, keep=3)
"""


def test_a_publisher_killed_at_any_moment_leaves_a_whole_current_version(tmp_path: Path) -> None:
    publish(tmp_path)
    for wait in (0.01, 0.033, 0.071):
        process = subprocess.Popen(
            [sys.executable, "-c", PUBLISH_FOR_EVER, str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        before = store.current(tmp_path).number
        while store.current_number(tmp_path) == before:
            pass
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        store.current(tmp_path).verify()
    assert publish(tmp_path) == store.current(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda v: (v.path / "manifest.json").unlink(), "there is no version 1; there are: 1"),
        (lambda v: (v.path / "manifest.json").write_bytes(b'{"format": 1'), "manifest.json: the file is damaged"),
        (lambda v: (v.path / "manifest.json").write_bytes(b"\xff"), "manifest.json: the file is damaged"),
        (lambda v: _change(v, subscriptions=2), "manifest.json: the file is damaged: its checksum is another"),
        (lambda v: _change(v, format=2), "manifest.json: the format is 2, and this is 1; compile anew"),
        (lambda v: v.index_path.write_text("inde"), "index.mpx: has 4 bytes, not 5; compile anew"),
        (lambda v: v.index_path.unlink(), "index.mpx: no such file or directory; check the directory"),
        (lambda v: (v.path.parent / "CURRENT").write_text("one"), "CURRENT: invalid literal.*; check the directory"),
        (lambda v: (v.path.parent / "CURRENT").write_text("7"), "there is no version 7; there are: 1"),
        (lambda v: (v.path.parent / "CURRENT").unlink(), "holds no compiled subscriptions; compile some"),
    ],
)
def test_damage_is_told_when_a_version_is_opened(
    tmp_path: Path, damage: Callable[[Version], object], message: str
) -> None:
    damage(publish(tmp_path))
    with pytest.raises(SourceError, match=message) as caught:
        store.current(tmp_path)
    assert "\n" not in str(caught.value)


def _change(version: Version, **fields: int) -> None:
    path = version.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_changed_byte_is_found_by_verifying(tmp_path: Path) -> None:
    version = publish(tmp_path)
    version.index_path.write_text("jndex")
    with pytest.raises(SourceError, match=r"index.mpx: the file is damaged: its checksum is another"):
        store.current(tmp_path).verify()


def test_directories_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SourceError, match="there is no such directory"):
        store.current(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="is no directory"):
        store.current(file)
    with pytest.raises(SourceError, match="file exists; check the directory"):
        publish(file)
    with pytest.raises(SourceError, match="hdfs://name/alerts: the index is mapped, which takes a local directory"):
        store.publish("hdfs://name/alerts", writer("x"))
    assert store.publish(tmp_path.as_uri(), writer("x")).path == tmp_path / "v00000001"
