"""Tenants: events and subscriptions of one never reach another, by any of the six schemes, whatever they are called."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.api.client_messages import DeadLettersReply, DeadLettersRequest
from meetpoint.api.outcomes import Published
from meetpoint.api.requests import Attach, Subscribe, SubscriptionOptions
from meetpoint.broker.clients.tenancy import ReservedError, Scope, event_outside
from meetpoint.broker.config import Access
from meetpoint.errors import EventError
from meetpoint.language import Attributes
from meetpoint.language.events.msgpack import from_msgpack, to_msgpack
from meetpoint.language.filters.algebra import covers, overlaps
from meetpoint.language.filters.filter import parse_filter
from meetpoint.matching import Scan
from meetpoint.schemes.dmm.rules import DmmSettings
from meetpoint.schemes.reach import ReachSettings
from meetpoint.schemes.rebeca.settings import RebecaSettings
from tests.broker.talking import Caller, calling, event, network, run
from tests.security.authorities import TestAuthority
from tests.workloads import random_events, random_filter

TENANTS = ("acme", "globex", "")
SCHEMA = "attributes:\n  i: integer\n  f: float\n  s: string\n"
SCHEMES: dict[str, dict[str, Any]] = {
    "dmm": {"dmm": DmmSettings(schema=SCHEMA)},
    "rebeca": {"rebeca": RebecaSettings(lease_us=500_000, period_us=100_000)},
    "flood": {},
    "lists:hybrid": {},
    "meet": {},
    "reach": {"reach": ReachSettings(schema=SCHEMA, lease_us=500_000)},
}


async def subscribe(client: Caller, name: str, filter_: str) -> None:
    """As `Caller.subscribe`, all of them asked at once by whoever gathers them."""
    for what in (Subscribe(name, filter_, SubscriptionOptions()), Attach(name, 1_000)):
        word = await client.get(what)
        assert type(word).__name__ == "Stored", word


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_tenant_gets_exactly_its_own_events(tmp_path: Path, scheme: str) -> None:
    """Three tenants with clients of one name, subscriptions of one name with one filter, and events of one id."""
    authority = TestAuthority(tmp_path)
    rng = random.Random(scheme)
    filters = {f"s{number}": random_filter(rng, 2) for number in range(6)} | {"all": "TRUE", "none": "FALSE"}
    scan: Scan[str] = Scan()
    for name, text in filters.items():
        scan.add(name, parse_filter(text))
    published = {tenant: random_events(rng, 25) for tenant in TENANTS}

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            said = {"scheme": scheme, **SCHEMES[scheme], "access": Access(**authority.access)}
            brokers = await stack.enter_async_context(network(2, **said))
            takers, makers = {}, {}
            for at, tenant in enumerate(TENANTS):
                token = authority.token("ann", tenant=tenant)
                here, there = brokers[at % 2].address, brokers[(at + 1) % 2].address
                takers[tenant] = await stack.enter_async_context(calling(here, token=token))
                makers[tenant] = await stack.enter_async_context(calling(there, token=token))
                for name, text in filters.items():
                    await subscribe(takers[tenant], name, text)
            for tenant, maker in makers.items():
                events = [_event(number, attributes) for number, attributes in enumerate(published[tenant])]
                assert all(isinstance(word, Published) for word in await maker.publish(*events))
            for tenant, taker in takers.items():
                expected = {
                    (f"e{number}", name)
                    for number, attributes in enumerate(published[tenant])
                    for name in scan.match(attributes)
                }
                came: list[tuple[str, str]] = []
                while len(came) < len(expected):
                    (one,) = await taker.notified(1)
                    read = from_msgpack(one.content)
                    assert one.content == _event(read.sequence, published[tenant][read.sequence])
                    came += [(read.id, name) for name in one.names]
                assert set(came) == expected
                assert len(came) == len(expected)
            for maker in makers.values():  # what were to come on top would have come before these
                await maker.publish(event(1_000, end=True))
            for tenant, taker in takers.items():
                (last,) = await taker.notified(1)
                assert from_msgpack(last.content).id == "e1000", tenant
                assert not taker.inbox
                assert await taker.get(DeadLettersRequest()) == DeadLettersReply((), False)
            # It was the filters that kept them apart, and not what is looked at again in the end.
            assert [broker.counts.refusals["delivery"] for broker in brokers] == [0, 0]

    run(main())


def _event(number: int, attributes: Attributes) -> bytes:
    return event(number, **attributes)


# -- what belongs to whom ----------------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
tenants = st.one_of(st.just(""), names)


@given(tenants, names, st.text(min_size=1, max_size=30), tenants, names, st.text(min_size=1, max_size=30))
def test_two_names_are_one_inside_only_if_they_are_the_same(
    tenant: str, client: str, name: str, tenant2: str, client2: str, name2: str
) -> None:
    one, two = Scope(tenant, client), Scope(tenant2, client2)
    is_same = (tenant, client, name) == (tenant2, client2, name2)
    assert (one.name_within(name) == two.name_within(name2)) is is_same
    assert one.names_outside((one.name_within(name),)) == (name,)
    assert one.own((one.name_within(name), two.name_within(name2))) == (
        (name, name2) if one.owner == two.owner else (name,)
    )


@given(tenants, tenants, st.randoms(use_true_random=False))
def test_filters_of_two_tenants_have_no_event_in_common(tenant: str, other: str, rng: random.Random) -> None:
    text = random_filter(rng, 2)
    one, two = Scope(tenant, "ann"), Scope(other, "ann")
    mine = parse_filter(one.filter_within(text))
    assert covers(parse_filter(text), mine)
    assert one.filter_outside(mine.text) == text
    if tenant != other:
        assert not overlaps(mine, parse_filter(two.filter_within(text)))


@given(tenants, names, st.randoms(use_true_random=False))
def test_an_event_comes_out_as_it_went_in(tenant: str, client: str, rng: random.Random) -> None:
    (attributes,) = random_events(rng, 1)
    said = _event(3, attributes)
    inside = Scope(tenant, client).event_within(said)
    assert event_outside(inside) == (tenant, said)
    read = from_msgpack(inside)
    assert read.id == f"@{tenant}/{client}/e3"
    assert read.attributes.get("$tenant") == (tenant or None)
    assert to_msgpack(read) == inside


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not MessagePack"),
        (b"\xc1", "is not MessagePack"),
        (b"\x91\x01", "is not an array of 5"),
        (b"\x95\xa1a\xa1b\x01\x02\x80", "time"),
        (b"\x95\x01\xa1b\x01\x02\x80", "id is of class int"),
        (b"\x95\xa0" + event(1)[4:], "id is empty"),
        (event(1, x=1).replace(b"\x81\xa1x\x01", b"\x82\xa1x\x01\xa1x\x02"), "occurs twice"),
        (event(1, x=1).replace(b"\x81\xa1x\x01", b"\x81\x07\x01"), "is not a non-empty string"),
        (b"\x91" * 2_000, "nests deeper|is not MessagePack"),
    ],
)
def test_what_is_no_event_is_told_as_without_a_token(content: bytes, says: str) -> None:
    with pytest.raises(EventError) as plain:
        from_msgpack(content)
    with pytest.raises(EventError, match=says) as scoped:
        from_msgpack(Scope("acme", "ann").event_within(content))
    assert str(scoped.value) == str(plain.value)


def test_no_event_names_a_tenant_itself() -> None:
    with pytest.raises(ReservedError, match=r"\$tenant"):
        Scope("acme", "ann").event_within(event(1, **{"$tenant": "globex"}))
