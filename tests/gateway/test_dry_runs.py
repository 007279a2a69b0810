"""POST /explain, /lint and /match."""

from __future__ import annotations

from typing import Any

import pytest

from meetpoint.gateway import GatewayLimits
from meetpoint.local_network import LocalNetwork
from tests.gateway.gateways import gateway, run


def test_a_filter_is_explained(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            said = {"filter": "price > 3 AND live", "event": {"price": 1, "live": True}}
            found = (await client.post("/explain", json=said)).json()
            assert (found["accepted"], found["verdict"], found["reason"]) == (False, "false", "price 1 is below 3")
            assert [child["verdict"] for child in found["tree"]["children"]] == ["false", "true"]

    run(main())


def test_filters_are_linted(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            said = {"filters": ["a > 3", "a > 4", "a >", "a > 3", "a > 1 AND a < 0"]}
            found = (await client.post("/lint", json=said)).json()
            seen = [(each["filter"], each["kind"], each.get("other")) for each in found["findings"]]
            assert seen == [(1, "covered", 0), (2, "refused", None), (3, "duplicate", 0), (4, "never", None)]

    run(main())


def test_filters_are_matched(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            said = {"filters": ["a > 3", "b = 'x'", "TRUE"], "events": [{"a": 4}, {"a": 3, "b": "x"}, {}]}
            assert (await client.post("/match", json=said)).json() == {"matches": [[0, 2], [1, 2], [2]]}

    run(main())


@pytest.mark.parametrize(
    ("path", "said", "status", "kind", "at"),
    [
        ("/explain", {"filter": "a >", "event": {}}, 422, "filter", 3),
        ("/explain", {"filter": "a > 1", "event": {"a": []}}, 422, "event", None),
        ("/explain", {"filter": "a > 1"}, 422, "body", None),
        ("/match", {"filters": ["TRUE", "a b"], "events": []}, 422, "filter", 2),
        ("/match", {"filters": ["TRUE"] * 4, "events": []}, 413, "size", None),
        ("/match", {"filters": [], "events": [{}] * 4}, 413, "size", None),
        ("/match", {"filters": ["TRUE"] * 3, "events": [{}] * 3}, 413, "size", None),
        ("/lint", {"filters": ["TRUE"] * 4}, 413, "size", None),
    ],
)
def test_what_cannot_be_tried_is_refused(
    here: LocalNetwork, path: str, said: dict[str, Any], status: int, kind: str, at: int | None
) -> None:
    async def main() -> None:
        limits = GatewayLimits(dry_filters=3, dry_events=3, dry_pairs=8)
        async with gateway(here.url, limits=limits) as (_, client):
            answer = await client.post(path, json=said)
            error = answer.json()["error"]
            assert (answer.status_code, error["kind"], error.get("at")) == (status, kind, at)

    run(main())


def test_what_takes_too_long_is_cut_short_or_refused_in_words(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url, limits=GatewayLimits(dry_s=0)) as (_, client):
            found = (await client.post("/lint", json={"filters": ["a > 3", "a > 4", "a >"]})).json()
            assert [each["kind"] for each in found["findings"]] == ["refused"]
            assert found["cut_short"] == 2
            answer = await client.post("/match", json={"filters": ["a > 3"], "events": [{"a": 4}]})
            assert answer.status_code == 413
            assert answer.json()["error"]["message"] == "0 of 1 events took 0 s; send fewer"

    run(main())
