"""Checks before a broker begins: data and networks of another overlay; settings hardly wanted."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from meetpoint.broker import Broker, BrokerConfig
from meetpoint.broker.config import BrokerError, ConfigError
from meetpoint.broker.startup import advice, advice_on_tls
from meetpoint.broker.storage import StoreError
from meetpoint.broker.transport.tls import TlsPolicy
from meetpoint.schemes.dmm.rules import DmmSettings
from meetpoint.schemes.reach import ReachSettings
from tests.broker.securing import tls_of
from tests.broker.talking import broker, calling, config, run
from tests.security.authorities import TestAuthority

ATTRIBUTES = DmmSettings(schema="attributes: {price: float}")


@pytest.mark.parametrize(("before", "after"), [("chord", "pastry"), ("pastry", "chord")])
def test_data_of_another_overlay_is_refused(tmp_path: Path, before: str, after: str) -> None:
    async def main() -> None:
        async with broker(name="a", data=str(tmp_path), overlay=before) as one, calling(one.address) as caller:
            await caller.subscribe("kept", "n > 0")
        bits = {"chord": 160, "pastry": 128}
        with pytest.raises(BrokerError) as refused:
            await Broker(config(name="a", data=str(tmp_path), overlay=after)).start()
        assert str(refused.value) == (
            f"data {tmp_path}: was kept on an overlay of {bits[before]}-bit ids, {after} has {bits[after]}; "
            "set overlay as it was, or use another folder"
        )
        async with broker(name="a", data=str(tmp_path), overlay=before):
            """Nothing has happened to it."""

    run(main())


def test_data_of_another_scheme_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(name="a", data=str(tmp_path), scheme="lists:hybrid") as one, calling(one.address) as caller:
            await caller.subscribe("kept", "n > 0")
        with pytest.raises(StoreError, match=f"store {tmp_path}: was kept by the scheme lists, not meet; set scheme"):
            await Broker(config(name="a", data=str(tmp_path))).start()
        async with broker(name="a", data=str(tmp_path), scheme="lists"):
            """Options of a scheme may change."""

    run(main())


def test_a_network_of_another_overlay_is_not_joined() -> None:
    async def main() -> None:
        async with broker() as one:
            with pytest.raises(BrokerError, match="the network has the overlay chord, not pastry; set overlay"):
                await Broker(config(join=(one.address,), overlay="pastry")).start()

    run(main())


@pytest.mark.parametrize(
    ("scheme", "dmm", "told"),
    [
        ("dmm", DmmSettings(), True),
        ("dmm:always:unicast", DmmSettings(), True),
        ("dmm", ATTRIBUTES, False),
        ("dmm:always", ATTRIBUTES, False),
        ("meet", DmmSettings(), False),
    ],
)
def test_dmm_without_attributes_is_advised_against(scheme: str, dmm: DmmSettings, told: bool) -> None:
    said = advice(BrokerConfig(scheme=scheme, dmm=dmm))
    assert bool(said) is told
    assert not told or "dmm.schema" in said[0].todo


@pytest.mark.parametrize(
    ("scheme", "told"),
    [("reach", True), ("reach:unquenched", True), ("reach:signatures", False), ("dmm:always", False)],
)
def test_reach_without_attributes_is_advised_against(scheme: str, told: bool) -> None:
    said = advice(BrokerConfig(scheme=scheme, dmm=ATTRIBUTES))
    assert bool(said) is told
    assert not told or "reach.schema" in said[0].todo
    assert not advice(BrokerConfig(scheme=scheme, dmm=ATTRIBUTES, reach=ReachSettings(schema=ATTRIBUTES.schema)))


def test_a_broker_that_is_open_to_all_is_warned_of() -> None:
    (said,) = advice(BrokerConfig(listen="10.0.0.1:1", insecure=True))
    assert said.problem.startswith("insecure: other machines can connect to listen: 10.0.0.1:1, and there is no cert")
    assert not advice(BrokerConfig(insecure=True))


def test_a_certificate_that_ends_or_names_another_host_is_warned_of(tmp_path: Path) -> None:
    ours = TestAuthority(tmp_path)
    for hosts, days, says in (
        (("127.0.0.1", "Broker.Example.org"), 15, []),
        (("127.0.0.1",), 13, ["ends in 13.0 days"]),
        (("elsewhere.example.org",), 15, ["does not name 127.0.0.1, where this broker is reached"]),
    ):
        said = BrokerConfig(tls=tls_of(ours.broker("a", *hosts, days=days)))
        found = advice_on_tls(said, TlsPolicy(said), "127.0.0.1:7400")
        assert len(found) == len(says)
        assert all(part in each.problem for part, each in zip(says, found, strict=True))
    assert not advice_on_tls(BrokerConfig(), TlsPolicy(BrokerConfig()), "127.0.0.1:7400")
    said = BrokerConfig(tls=tls_of(ours.broker("a", "Broker.Example.org")))
    assert not advice_on_tls(said, TlsPolicy(said), "broker.EXAMPLE.org:7400")


def test_a_schema_that_reach_can_do_nothing_with_is_refused() -> None:
    for schema in ("attributes: {}", "what"):
        with pytest.raises(ConfigError, match=r"reach\.schema"):
            BrokerConfig(reach=ReachSettings(schema=schema))


def test_the_advice_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with broker(scheme="dmm"):
            """It serves all the same."""

    with caplog.at_level(logging.WARNING):
        run(main())
    (line,) = [each.getMessage() for each in caplog.records if "dmm" in each.getMessage()]
    assert line.startswith("event=settings ")
    assert "todo=" in line
