"""How many file handles are kept, and from whom; brokers that run out of them are in `tests.processes.test_handles`."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from meetpoint.broker.transport.sockets import FileHandles, handles, is_out_of_handles

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")


@pytest.mark.parametrize(
    ("limit", "first_not_for_clients", "first_for_nobody"),
    [(1024, 896, 1008), (1_000_000, 999_872, 999_984), (100, 75, 97), (8, 6, 7)],
)
def test_clients_get_what_is_not_kept_and_brokers_some_of_that(
    limit: int, first_not_for_clients: int, first_for_nobody: int
) -> None:
    assert FileHandles(limit, first_not_for_clients - 1).for_clients
    assert not FileHandles(limit, first_not_for_clients).for_clients
    assert FileHandles(limit, first_for_nobody - 1).for_anyone
    assert not FileHandles(limit, first_for_nobody).for_anyone


def test_the_next_handle_is_the_one_that_is_given_next(tmp_path: Path) -> None:
    lowest = handles().lowest
    with (tmp_path / "file").open("w") as file:
        assert file.fileno() == lowest
        assert handles().lowest > lowest
    assert handles().lowest == lowest


RUN = """
import os, resource
from meetpoint.broker.transport.sockets import handles, raise_limit
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
assert handles().limit == 64
kept = []
try:
    while True:
        kept.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    assert not handles().for_anyone
raise_limit()
assert handles().limit == most
assert handles().for_clients == (most > 128)
"""


@pytest.mark.slow
def test_a_process_without_any_notices_and_may_have_as_many_as_are_allowed() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_a_lack_of_handles_is_one() -> None:
    assert is_out_of_handles(OSError(errno.EMFILE, "too many"))
    assert not is_out_of_handles(OSError(errno.ECONNREFUSED, "nobody there"))
    assert not is_out_of_handles(TimeoutError())
