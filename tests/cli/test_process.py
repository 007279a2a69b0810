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
PATIENCE_S = 180.0


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


@pytest.mark.parametrize("command", ["match", "lint", "explain", "backtest"])
def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path: Path, command: str) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"a": 1}\n' * 5000)
    arguments = {
        "match": ["match", str(events), "--subs", str(many_subs(tmp_path / "subs.jsonl", 50))],
        "lint": ["lint", str(odd_subs(tmp_path / "odd.jsonl", 4_000)), "--json"],
        "backtest": ["backtest", " OR ".join(f"a > {n} AND b{n} > 1" for n in range(60)), "--events", str(events)],
        "explain": ["explain", " OR ".join(f"a IN ({'1, ' * 2000}{n})" for n in range(9)), '{"a": 0}', "--json"],
    }[command]
    process = start(*arguments)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0


CLOSED = """
import os, sys
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
from meetpoint.cli import main
main()
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["lint", "SUBS"], ["lint", "SUBS", "--json"], []])
def test_a_reader_that_never_was_ends_it_quietly(tmp_path: Path, arguments: list[str]) -> None:
    subs = str(odd_subs(tmp_path / "odd.jsonl", 30))
    command = [sys.executable, "-c", CLOSED, *[subs if a == "SUBS" else a for a in arguments]]
    done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["match", "lint", "backtest", "--help", "--version"])
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path: Path, command: str) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"a": 1}\n')
    subs = str(many_subs(tmp_path / "subs.jsonl", 2))
    arguments = {
        "match": ["match", str(events), "--subs", subs],
        "lint": ["lint", subs],
        "backtest": ["backtest", "a > 0", "--events", str(events), "--json"],
    }.get(command, [command])
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, check=False, timeout=PATIENCE_S
        )
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert done.stderr.startswith(b"meetpoint: no space left on device; ")


INTERRUPTED = """
import sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from meetpoint.cli import main
main()
"""


def test_ctrl_c_while_it_loads() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"meetpoint: stopped\n")


def test_ctrl_c_stops_it_with_one_line_and_leaves_no_half_file(tmp_path: Path) -> None:
    out = tmp_path / "pairs.jsonl"
    subs = str(many_subs(tmp_path / "subs.jsonl", 5))
    process = start("match", "-", "--subs", subs, "--out", str(out), stdin=subprocess.PIPE)
    assert process.stdin is not None
    deadline = time.monotonic() + PATIENCE_S
    while not out.with_name("pairs.jsonl.part").exists():  # it has begun, and waits for more input
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert err == b"meetpoint: stopped\n"
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == [tmp_path / "subs.jsonl"]


@pytest.mark.parametrize("arguments", [["backtest", "a > 1", "--events", "-"], ["schema", "infer", "-"], ["lint", "-"]])
def test_ctrl_c_while_it_waits_for_input(arguments: list[str]) -> None:
    process = start(*arguments, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"a": 1, "id": 1, "filter": "a > 1"}\n')
    process.stdin.flush()
    deadline = time.monotonic() + PATIENCE_S
    while unread(process.stdin.fileno()):  # it has begun to read, and waits for more
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, b"", b"meetpoint: stopped\n")


def unread(descriptor: int) -> int:
    """How many bytes lie in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0])


def test_shells_can_complete_it() -> None:
    asked = {"_MEETPOINT_COMPLETE": "complete_bash", "COMP_WORDS": "meetpoint ba", "COMP_CWORD": "1"}
    command = Path(sys.executable).with_name("meetpoint")
    done = subprocess.run(
        command, env=os.environ | asked, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "backtest", "")
