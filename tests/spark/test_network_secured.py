"""`format("meetpoint")` in Spark itself, on a network with certificates and tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import meetpoint as mp
from meetpoint.broker.config import Access
from meetpoint.security import Rights
from meetpoint.spark import Subscriptions, register
from tests.broker.securing import tls_of
from tests.security.authorities import TestAuthority
from tests.spark.network_scenes import PATIENCE_S, all_before_markers, brokers

EVENTS = 30
MARKER = {"kind": "out", "n": 1_000_000}


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "authority")


@pytest.fixture
def url(authority: TestAuthority, tmp_path: Path) -> Iterator[str]:
    tls = tls_of(authority.broker("local0"))
    with brokers(tmp_path, 1, tls=tls, access=Access(**authority.access)) as here:
        yield here.url.replace("mp://", "mps://")


def publish(url: str, authority: TestAuthority, tenant: str, numbers: range) -> None:
    token = authority.token("feed", tenant=tenant)
    with mp.connect_sync(url, token=token, ca=authority.ca, timeout=PATIENCE_S) as net:
        net.publish_many({"kind": "in", "n": n} for n in numbers)


def subscribe(url: str, authority: TestAuthority, tenant: str) -> None:
    """Make the subscription that `taken` reads."""
    token = authority.token("reader", tenant=tenant)
    with mp.connect_sync(url, token=token, ca=authority.ca, timeout=PATIENCE_S) as net:
        net.subscribe("kind = 'out'", durable="out")


def taken(url: str, authority: TestAuthority, tenant: str, count: int) -> list[int]:
    """So many events of a tenant, and all others before a marker."""
    access: dict[str, Any] = {"token": authority.token("reader", tenant=tenant), "ca": authority.ca}
    with mp.connect_sync(url, timeout=PATIENCE_S, **access) as net:
        out = net.subscribe("kind = 'out'", durable="out")
        address = url.removeprefix("mps://")
        return sorted(event["n"] for event in all_before_markers(out, count, [address], MARKER, **access))  # type: ignore[misc]


def run(spark: Any, folder: Path, reading: dict[str, str], writing: dict[str, str]) -> None:
    """All that there is, read with one token and published with another."""
    events = spark.readStream.format("meetpoint").options(since="earliest", filter="kind = 'in'", **reading).load()
    rows = events.selectExpr("'out' AS kind", "CAST(get_json_object(attributes, '$.n') AS BIGINT) AS n")
    sink = rows.writeStream.format("meetpoint").options(publisher="between", **writing)
    query = sink.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)


def test_a_stream_reads_and_publishes_what_its_tokens_permit(
    spark: Any, authority: TestAuthority, url: str, tmp_path: Path
) -> None:
    register(spark)
    for tenant, numbers in (("acme", range(EVENTS)), ("other", range(1000, 1000 + EVENTS))):
        subscribe(url, authority, tenant)
        publish(url, authority, tenant, numbers)
    (tmp_path / "token").write_text(authority.token("spark", tenant="acme"))
    safe = {"url": url, "ca": authority.ca, "tokenFile": str(tmp_path / "token")}
    run(spark, tmp_path / "checkpoint", safe, safe)
    assert taken(url, authority, "acme", EVENTS) == list(range(EVENTS))
    assert taken(url, authority, "other", 0) == [], "what another tenant has is neither read nor reached"
    table = spark.read.format("meetpoint").options(filter="kind = 'in'", **safe).load()
    assert table.count() == EVENTS
    found = Subscriptions.from_network(
        url, token=authority.token("reader", tenant="acme"), ca=authority.ca, owner="reader", spark=spark
    )
    assert found.count == 1


def test_who_may_not_is_told_so(spark: Any, authority: TestAuthority, url: str, tmp_path: Path) -> None:
    register(spark)
    publish(url, authority, "acme", range(EVENTS))
    good = {"url": url, "ca": authority.ca, "token": authority.token("spark", tenant="acme")}
    mute = {**good, "token": authority.token("spark", tenant="acme", publish=Rights(("kind = 'other'",)))}
    with pytest.raises(PySparkException, match="the token permits publishing only what is kind = 'other'"):
        run(spark, tmp_path / "mute", good, {**mute, "timeout": "20"})
    late = {**good, "token": authority.token("spark", begins=time.time() - 120, seconds=60)}
    with pytest.raises(PySparkException, match="expired"):
        spark.read.format("meetpoint").options(**late).load().count()
    with pytest.raises(PySparkException, match="token"):
        spark.read.format("meetpoint").options(url=url, ca=authority.ca).load().count()
    with pytest.raises(PySparkException, match=r"certificate|authority"):
        spark.read.format("meetpoint").options(url=url, token=good["token"]).load().count()
    assert spark.read.format("meetpoint").options(**good).load().count() == EVENTS
