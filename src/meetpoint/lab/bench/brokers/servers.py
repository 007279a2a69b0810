"""Servers of the comparison: RabbitMQ and NATS, each a child of this process, on loopback, with its own folder."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from meetpoint.errors import SetupError

HOST = "127.0.0.1"
START_S = 60.0
"""The longest time that a server may take to accept connections."""
STOP_S = 10.0
PORTS = range(10_000, 20_000)
_given: set[tuple[str, int]] = set()

_RABBITMQ_PLACES = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/local/sbin/rabbitmq-server")
"""The script itself: the one on the PATH in Debian changes to another user and another folder first."""


def find_rabbitmq() -> tuple[str, str]:
    """Return the programs of RabbitMQ: the server, and the name service of Erlang."""
    server = next((place for place in _RABBITMQ_PLACES if os.access(place, os.X_OK)), None)
    server = server or shutil.which("rabbitmq-server")
    epmd = shutil.which("epmd")
    if server is None or epmd is None:
        raise SetupError("RabbitMQ is not installed; on Debian and Ubuntu: apt install rabbitmq-server")
    try:
        import pika  # noqa: F401
    except ImportError:
        raise SetupError("pika, RabbitMQ's client, is not installed; run: pip install 'meetpoint[bench]'") from None
    return server, epmd


def find_nats() -> str:
    """Return the program of NATS."""
    server = shutil.which("nats-server")
    if server is None:
        raise SetupError("NATS is not installed; on Debian and Ubuntu: apt install nats-server")
    try:
        import nats  # noqa: F401
    except ImportError:
        raise SetupError("nats-py, the client of NATS, is not installed; run: pip install 'meetpoint[bench]'") from None
    return server


def free_port(host: str = HOST) -> int:
    """Return a free port outside the range that systems give to connections by themselves. So nobody else gets it by
    chance until somebody listens there. This process is given none twice.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if (host, port) in _given:
            continue
        try:
            with socket.create_server((host, port)):
                _given.add((host, port))
                return port
        except OSError:
            continue
    raise SetupError(f"no port of {host} from {PORTS[0]} to {PORTS[-1]} is free; stop some servers")


@contextmanager
def run_rabbitmq(folder: Path) -> Iterator[int]:
    """Run a RabbitMQ with its own name service; yield its port."""
    server, epmd = find_rabbitmq()
    folder.mkdir(parents=True, exist_ok=True)
    port, names, between = free_port(), free_port(), free_port()
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = {HOST}:{port}\ndisk_free_limit.absolute = 64MB\nlog.console = false\n"
    )
    (folder / "plugins").write_text("[].\n")
    settings = {
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(names),
        "HOME": str(folder),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_DIST_PORT": str(between),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_NODENAME": f"meetpoint-{os.getpid()}-{port}@localhost",
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    with ExitStack() as stack:
        stack.enter_context(running([epmd, "-address", HOST, "-port", str(names)], folder / "epmd.log", settings))
        process = stack.enter_context(running([server], folder / "server.log", settings))
        wait_open(port, process, folder / "server.log", "RabbitMQ", greeting=b"AMQP\x00\x00\x09\x01")
        yield port


@contextmanager
def run_nats(folder: Path) -> Iterator[int]:
    """Run a NATS server without a disk; yield its port."""
    server = find_nats()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with running([server, "-a", HOST, "-p", str(port)], folder / "server.log", {}) as process:
        wait_open(port, process, folder / "server.log", "NATS")
        yield port


@contextmanager
def running(
    command: Sequence[str], log: Path, settings: Mapping[str, str], stop: signal.Signals = signal.SIGTERM
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a process group of its own, so that it ends with all that it has started."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **settings},
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            _signal(process, stop)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
        # Also where the leader has ended: its children would go on and take the ports of the next run.
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, what)


def wait_open(
    port: int, process: subprocess.Popen[bytes], log: Path, name: str, greeting: bytes = b"", within: float = START_S
) -> None:
    """Wait until a server accepts a connection and answers."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SetupError(f"{name} ended with code {process.returncode} when it was started; see {log}")
        with suppress(OSError), socket.create_connection((HOST, port), timeout=2) as probe:
            probe.sendall(greeting)
            if probe.recv(1):
                return
        time.sleep(0.1)
    raise SetupError(f"{name} accepts no connection after {within:.0f} s; see {log}")
