"""The command as a process of its own: a reader that goes away, Ctrl-C, and completion."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from meetpoint.cli import main; main()"]


def start(*arguments: str, stdin: int | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def many_subs(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps({"id": n, "filter": "TRUE"}) + "\n" for n in range(count)))
    return path


def odd_subs(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps({"id": n, "filter": f"a > {n} AND FALSE"}) + "\n" for n in range(count)))
    return path


@pytest.mark.parametrize("command", ["match", "lint", "explain"])
def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path: Path, command: str) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"a": 1}\n' * 5000)
    arguments = {
        "match": ["match", str(events), "--subs", str(many_subs(tmp_path / "subs.jsonl", 50))],
        "lint": ["lint", str(odd_subs(tmp_path / "odd.jsonl", 20_000)), "--json"],
        "explain": ["explain", " OR ".join(f"a IN ({'1, ' * 2000}{n})" for n in range(9)), '{"a": 0}', "--json"],
    }[command]
    process = start(*arguments)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_ctrl_c_stops_it_with_one_line_and_leaves_no_half_file(tmp_path: Path) -> None:
    out = tmp_path / "pairs.jsonl"
    subs = str(many_subs(tmp_path / "subs.jsonl", 5))
    process = start("match", "-", "--subs", subs, "--out", str(out), stdin=subprocess.PIPE)
    assert process.stdin is not None
    deadline = time.monotonic() + 60
    while not out.with_name("pairs.jsonl.part").exists():  # it has begun, and waits for more input
        assert time.monotonic() < deadline
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert err == b"meetpoint: stopped\n"
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == [tmp_path / "subs.jsonl"]


@pytest.mark.parametrize("arguments", [["backtest", "a > 1", "--events", "-"], ["schema", "infer", "-"], ["lint", "-"]])
def test_ctrl_c_while_it_waits_for_input(arguments: list[str]) -> None:
    process = start(*arguments, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"a": 1, "id": 1, "filter": "a > 1"}\n')
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while unread(process.stdin.fileno()):  # it has begun to read, and waits for more
        assert time.monotonic() < deadline
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"meetpoint: stopped\n")


def unread(descriptor: int) -> int:
    """How many bytes lie in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0])


def test_shells_can_complete_it() -> None:
    asked = {"_MEETPOINT_COMPLETE": "complete_bash", "COMP_WORDS": "meetpoint ba", "COMP_CWORD": "1"}
    command = Path(sys.executable).with_name("meetpoint")
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "backtest", "")
