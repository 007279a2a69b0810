"""The client library with tokens: what a program sees of permissions, tenants and tokens that expire."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from meetpoint.broker.config import Access
from meetpoint.client import connect
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import EventError
from meetpoint.security import Rights
from tests.broker.talking import network
from tests.client.running import run, take, until
from tests.security.authorities import TestAuthority


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


def test_a_program_works_with_its_own_names_wherever_they_are(authority: TestAuthority) -> None:
    async def main() -> None:
        token = authority.token("ann", tenant="acme")
        async with network(2, access=Access(**authority.access)) as brokers:
            async with (
                connect(brokers[0].address, token=token) as net,
                await net.subscribe("x > 0", durable="alerts", labels={"a": "b"}) as alerts,
            ):
                await net.publish({"x": 1}, id="one")
                (came,) = await take(alerts, 1)
                assert (came.event.id, came.event.attributes) == ("one", {"x": 1})
                assert came.event.publisher == net.publisher
                await came.ack()
            async with connect(brokers[1].address, "ann", token=token) as net:  # by the other broker
                (held,) = await net.subscriptions()
                assert (held.name, held.filter, held.terms.owner) == ("alerts", "x > 0", "ann")
                assert (await net.locate("alerts")).filter == "x > 0"
                async with await net.subscribe("x > 5", durable="alerts", replace=True) as alerts:
                    await net.publish({"x": 6})
                    (came,) = await take(alerts, 1)
                    assert came.event.attributes == {"x": 6}
                    await alerts.unsubscribe()
                assert await net.subscriptions() == []

    run(main())


def test_what_is_not_permitted_is_told_and_the_program_goes_on(authority: TestAuthority) -> None:
    async def main() -> None:
        rights = Rights(("kind = 'a'",))
        token = authority.token("ann", publish=rights, subscribe=rights)
        async with (
            network(1, access=Access(**authority.access)) as (one,),
            connect(one.address, token=token) as net,
        ):
            with pytest.raises(EventError, match="the token permits publishing only what is kind = 'a'"):
                await net.publish({"kind": "b"})
            with pytest.raises(RefusedError, match=r"add to the filter: AND \(kind = 'a'\)"):
                await net.subscribe("x > 0")
            async with await net.subscribe("x > 0 AND kind = 'a'") as allowed:
                await net.publish({"kind": "a", "x": 1})
                assert len(await take(allowed, 1)) == 1
            with pytest.raises(RefusedError, match="the role operate"):
                await net.declare("attributes: {x: integer}")

    run(main())


def _has_grown(shown: list[str], before: int) -> bool:
    return len(shown) > before


def test_a_program_outlives_its_tokens(authority: TestAuthority) -> None:
    """A function gives a fresh token for each connection; what was published while one expired is not lost."""

    async def main() -> None:
        shown: list[str] = []

        def fresh() -> str:
            shown.append(authority.token("ann", seconds=1.5))
            return shown[-1]

        async with network(2, access=Access(**authority.access)) as brokers:
            address = brokers[0].address
            async with connect(address, token=fresh) as net, await net.subscribe("x > 0", durable="s") as mine:
                for number in range(40):
                    await net.publish({"x": number + 1}, id=f"e{number}")
                    (came,) = await take(mine, 1)
                    assert came.event.id == f"e{number}"
                    await came.ack()
                    if number in (10, 20, 30):
                        await until(partial(_has_grown, shown, len(shown)))
            assert sum(one.counts.refusals["token_expired"] for one in brokers) >= 3

    run(main())


def test_a_program_whose_token_expired_is_told_why(authority: TestAuthority) -> None:
    async def main() -> None:
        async with (
            network(1, access=Access(**authority.access)) as (one,),
            connect(one.address, token=authority.token("ann", seconds=1)) as net,
        ):
            mine = await net.subscribe("x > 0", durable="s")
            await until(lambda: mine.ended is not None)
            assert "token: it expired at" in str(mine.ended)
            with pytest.raises(NetworkError, match="token: it expired at"):
                await net.publish({"x": 1})

    run(main())
