"""What `deploy/` and docs/operations.md say is so: options, settings, files and metrics that are named there exist, and
the commands of the step-by-step guide do what stands beside them, with real brokers.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from meetpoint.broker import Broker, make_config, read_config, startup
from meetpoint.broker.observe.logs import KINDS
from meetpoint.cli.app import app
from meetpoint.security import read_certificate
from tests.ports import reserve_ports

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
BROKERS = ("broker-1", "broker-2", "broker-3")
PATIENCE_S = 180.0
pytestmark = pytest.mark.xdist_group("deploy")  # the keys are made once


def read_yaml(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


COMPOSE = read_yaml("compose.yaml")


def options_of(arguments: list[str]) -> dict[str, Any]:
    """What `meetpoint ARGUMENTS` understands; an option that is none raises."""
    command: Any = typer.main.get_command(app)
    with command.commands[arguments[0]].make_context(arguments[0], arguments[1:]) as context:
        return dict(context.params)


# -- metrics -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metrics() -> str:
    """What /metrics of a running broker says."""

    async def ask() -> str:
        broker = Broker(make_config({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "log": {"level": "error"}}))
        await broker.start()
        try:
            url = f"http://{broker.admin_address}/metrics"
            with await asyncio.to_thread(urllib.request.urlopen, url, timeout=PATIENCE_S) as response:
                return str(response.read().decode())
        finally:
            await broker.stop()

    return asyncio.run(ask())


def names_in(metrics: str, kind: str) -> set[str]:
    """The metrics of one kind, with the suffixes they are asked for by."""
    return {name for name, is_ in re.findall(r"^# TYPE (\S+) (\S+)$", metrics, re.MULTILINE) if is_ == kind}


def test_every_metric_that_is_asked_for_is_one_that_a_broker_gives(metrics: str) -> None:
    given = names_in(metrics, "counter") | names_in(metrics, "gauge")
    for name in names_in(metrics, "histogram"):
        given |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    for file in ("prometheus/alerts.yml", "grafana/meetpoint.json"):
        asked = set(re.findall(r"\bmeetpoint_[a-z_]+", (DEPLOY / file).read_text(encoding="utf-8")))
        assert len(asked) > 8
        assert not asked - given, file


def table(head: str) -> dict[str, str]:
    """The first and the last column of a table of docs/operations.md."""
    rows = OPERATIONS.partition(f"| {head}")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(all(row) for row in cells), head
    return {row[0].strip("`"): row[-1] for row in cells}


def test_the_page_lists_every_metric(metrics: str) -> None:
    labelled = {"meetpoint_observed_total", "meetpoint_wire_errors_total", "meetpoint_refusals_total"}
    counters = {f"meetpoint_{name}_total" for name in table("counter")}
    assert counters == names_in(metrics, "counter") - labelled
    assert {f"meetpoint_{name}" for name in table("gauge")} == names_in(metrics, "gauge")
    for name in labelled | names_in(metrics, "histogram"):
        assert f"`{name}" in OPERATIONS


def test_the_page_lists_every_kind_of_refusal_and_every_alert() -> None:
    assert list(table("kind")) == list(KINDS)
    named = {name for row in table("alert") for name in re.findall(r"\w+", row)}
    rules = read_yaml("prometheus/alerts.yml")["groups"][0]["rules"]
    assert named == {rule["alert"] for rule in rules}
    for rule in rules:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        for kinds in re.findall(r'kind=~"([^"]+)"', rule["expr"]):
            assert set(kinds.split("|")) <= set(KINDS)


def test_the_dashboard_has_a_question_in_every_panel() -> None:
    board = json.loads((DEPLOY / "grafana" / "meetpoint.json").read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        for target in panel["targets"]:
            assert "meetpoint_" in target["expr"], panel["title"]
            assert target["expr"].count("(") == target["expr"].count(")"), panel["title"]
    assert len(panels) > 12


# -- systemd -----------------------------------------------------------------------------------------------------------


def unit_lines(key: str) -> list[str]:
    text = (DEPLOY / "meetpoint.service").read_text(encoding="utf-8")
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


def test_the_unit_starts_a_broker_with_options_that_exist() -> None:
    (command,) = unit_lines("ExecStart")
    arguments = shlex.split(command)[1:]
    said = options_of(arguments)
    assert said["config"] == Path("/etc/meetpoint/broker.toml")
    assert said["data"] == Path("/var/lib/meetpoint")
    drain_s = make_config({}).limits.drain_s
    assert int(unit_lines("TimeoutStopSec")[0].removesuffix("s")) >= 2 * drain_s
    assert unit_lines("RestartPreventExitStatus") == ["2"]
    (before,) = unit_lines("ExecStartPre")
    assert shlex.split(before)[1:] == ["-m", startup.MODULE]


def test_systemd_takes_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    text = (DEPLOY / "meetpoint.service").read_text(encoding="utf-8")
    unit = tmp_path / "meetpoint.service"
    unit.write_text(re.sub(r"/opt/meetpoint/bin/\w+", sys.executable, text), encoding="utf-8")
    verified = subprocess.run(
        [analyze, "verify", unit], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    scored = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", unit],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert scored.returncode == 0, scored.stdout.splitlines()[-1:]


# -- compose -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the service `setup` makes."""
    folder = tmp_path_factory.mktemp("keys")
    entry = COMPOSE["services"]["setup"]["entrypoint"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for _ in range(2):  # the second time there is nothing left to do
        command = ["sh", str(DEPLOY / "setup.sh"), str(folder), *entry[3:]]
        ran = subprocess.run(
            command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ""
    return folder


@pytest.mark.parametrize("name", BROKERS)
def test_each_broker_of_compose_has_a_configuration_that_is_taken(keys: Path, tmp_path: Path, name: str) -> None:
    service = COMPOSE["services"][name]
    said = options_of(service["command"])
    shutil.copy(DEPLOY / "broker.toml", tmp_path / "broker.toml")
    shutil.copytree(keys / name, tmp_path / "keys")
    chosen = {key: said[key] for key in ("name", "listen", "advertise", "admin")}
    config = read_config(tmp_path / "broker.toml", **chosen, join=said["join"] or None)
    assert config.has_tls
    assert config.access.keys == str(tmp_path / "keys" / "tokens.pub")
    for path in (config.tls.certificate, config.tls.key, config.tls.ca, config.tls.revoked, config.access.revoked):
        assert path is not None
        assert Path(path).is_file()
    assert not config.insecure
    held = read_certificate(str(config.tls.certificate))
    assert held.identity == (config.network, name)
    assert config.advertise == f"{name}:7400"
    assert {name, "localhost"} <= set(held.addresses)  # the second for the health check
    assert all(address.partition(":")[0] in BROKERS for address in config.join)
    assert bool(config.join) == (name != "broker-1")


def test_compose_names_only_what_is_there(keys: Path) -> None:
    services = COMPOSE["services"]
    assert tuple(services["setup"]["entrypoint"][3:]) == BROKERS
    for name, service in services.items():
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), (name, source)
            else:
                assert source in COMPOSE["volumes"], (name, source)
            if name == "setup" and target.startswith("/keys/"):
                assert (keys / target.removeprefix("/keys/")).is_dir(), target
    mounted = {volume.split(":")[0] for service in BROKERS for volume in services[service]["volumes"]}
    assert "authority" not in mounted, "the private keys are nobody's but the authority's"
    for broker in BROKERS:
        assert services[broker]["healthcheck"]["test"][:3] == ["CMD", "python", "-c"]
        compile(services[broker]["healthcheck"]["test"][3], "healthcheck", "exec")
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    owner = services["setup"]["environment"]["MEETPOINT_OWNER"]
    assert f"--uid {owner.partition(':')[0]} " in dockerfile


def test_prometheus_scrapes_the_brokers_of_compose(keys: Path) -> None:
    settings = read_yaml("prometheus/prometheus.yml")
    (job,) = settings["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:7480" for name in BROKERS]
    for path in (job["tls_config"]["ca_file"], job["authorization"]["credentials_file"]):
        assert (keys / "watch" / Path(path).name).is_file()
    for file in settings["rule_files"]:
        assert (DEPLOY / "prometheus" / file).is_file()


def test_the_image_is_built_of_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY") and "--from" not in line]
    assert copied
    for source in (name for names in copied for name in names):
        assert (ROOT / source).exists(), source
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"broker"} <= set(extras.split(",")) <= known.keys()
    assert options_of(json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0]))["data"] == Path(
        "/var/lib/meetpoint"
    )


# -- the guide ---------------------------------------------------------------------------------------------------------


class Guide:
    """The commands of the guide in their order, with what stands below each, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "deploy").symlink_to(DEPLOY)
        begin = reserve_ports() - 7400
        ports = {str(port): str(begin + port) for port in (7400, 7401, 7402, 7480, 7481, 7482)}
        section = OPERATIONS.partition("## A secured network, step by step")[2].partition("\n## ")[0]
        text = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))
        for port, free in ports.items():
            text = text.replace(f":{port}", f":{free}")
        self.steps = [
            (command, "\n".join(below))
            for command, *below in (part.splitlines() for part in text.split("$ ")[1:] if part.strip())
        ]
        self.admins = [int(ports[str(port)]) for port in (7480, 7481, 7482)]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._env = {**os.environ, "PATH": path, "NO_COLOR": "1"}
        self.brokers: list[subprocess.Popen[bytes]] = []

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        if command.startswith("export "):
            self._env |= dict(pair.split("=", 1) for pair in shlex.split(command)[1:])
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def start(self, command: str) -> None:
        log = (self.folder / f"broker-{len(self.brokers)}.log").open("wb")
        with log:
            process = subprocess.Popen(shlex.split(command), cwd=self.folder, env=self._env, stderr=log)
        self.brokers.append(process)
        self.until(lambda: self.ask(len(self.brokers) - 1, "readyz") == "ready\n")

    def ask(self, broker: int, what: str) -> str:
        with suppress(OSError):
            url = f"http://localhost:{self.admins[broker]}/{what}"
            with urllib.request.urlopen(url, timeout=20) as response:
                return str(response.read().decode())
        return ""

    def until(self, holds: Any) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            logs = "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))
            assert time.monotonic() < end, logs
            time.sleep(0.05)

    def stop(self) -> None:
        for process in self.brokers:
            process.kill()
            process.wait()


@pytest.fixture
def guide(tmp_path: Path) -> Iterator[Guide]:
    made = Guide(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def test_the_guide_does_what_it_says(guide: Guide) -> None:
    for command, below in guide.steps:
        if command.startswith("meetpoint broker "):
            guide.start(command)
            continue
        ran = guide.run(command)
        if below.startswith("meetpoint: "):
            assert (ran.returncode, ran.stderr.strip()) == (2, below), command
        else:
            assert ran.returncode == 0, (command, ran.stderr)
            assert not below or json.loads(ran.stdout) == json.loads(below), command
    assert len(guide.brokers) == 3
    assert guide.run("meetpoint pub '{\"a\": 1}'").returncode == 0, "the list is read at SIGHUP, not before"
    for process in guide.brokers[:2]:
        process.send_signal(signal.SIGHUP)
    guide.until(lambda: refusals(guide.ask(0, "metrics"), "certificate"))
    refused = guide.run("meetpoint pub '{\"a\": 1}' 2>&1")
    assert refused.returncode == 2
    assert "was revoked" in refused.stdout
    guide.until(lambda: refusals(guide.ask(0, "metrics"), "token_revoked"))
    assert [process.poll() for process in guide.brokers] == [None, None, None]


def refusals(metrics: str, kind: str) -> float:
    found = re.search(rf'^meetpoint_refusals_total{{kind="{kind}"}} (\S+)$', metrics, re.MULTILINE)
    return 0.0 if found is None else float(found[1])
