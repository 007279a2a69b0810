"""Tokens in the handshake and after it: who may connect, what it may do, and that nobody reaches what is another's."""

from __future__ import annotations

import contextlib
import time
import typing
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from meetpoint.api.client_messages import (
    BrokersReply,
    BrokersRequest,
    BrokerStatus,
    DeadLettersReply,
    DeadLettersRequest,
    Discard,
    Ended,
    GoAway,
    JournalReply,
    JournalRequest,
    Notification,
    Request,
    RequestBody,
    SchemaReply,
    SchemaRequest,
    StatusRequest,
    SubscriptionsReply,
    SubscriptionsRequest,
)
from meetpoint.api.codec import frames
from meetpoint.api.handshake import Hello, HelloRejected
from meetpoint.api.outcomes import Located, Published, Refused, Stored
from meetpoint.api.requests import (
    Acknowledge,
    Attach,
    Declare,
    Detach,
    Forget,
    Leave,
    Locate,
    Lookup,
    Publish,
    Reject,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Update,
)
from meetpoint.broker import Broker
from meetpoint.broker.clients.authorization import SessionPolicy
from meetpoint.broker.config import Access
from meetpoint.lab.bench.hostile import MessageGenerator
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.node.settings import NodeSettings
from meetpoint.security import Rights
from meetpoint.security.tokens import TOKEN_MAX, Verifier
from tests.broker.talking import Caller, broker, calling, event, raw, run, until
from tests.security.authorities import TestAuthority

HASTY = NodeSettings(acknowledge_us=1_000_000, retries_us=(100_000,))


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


def access(authority: TestAuthority) -> Access:
    return Access(**authority.access)


async def is_refused(client: Caller, what: RequestBody, says: str, *, retry: bool = False) -> None:
    """A request is refused in these words, and the connection stays."""
    word = await client.get(what)
    assert isinstance(word, Refused), word
    assert says in word.reason, word.reason
    assert word.retry is retry
    assert isinstance(await client.get(SchemaRequest()), SchemaReply)


# -- the handshake -----------------------------------------------------------------------------------------------------


def _forged(one: TestAuthority, other: TestAuthority) -> str:
    return other.token("ann")


def _changed(one: TestAuthority, other: TestAuthority) -> str:
    head, _, signature = one.token("ann").split(".")
    return ".".join((head, one.token("root", roles=("operate",)).split(".")[1], signature))


def _revoked(one: TestAuthority, other: TestAuthority) -> str:
    token = one.token("mallory")
    one.issuer.revoke(one.issuer.issued_to("mallory"))
    return token


BAD_TOKENS: list[tuple[str, Callable[[TestAuthority, TestAuthority], str], str]] = [
    ("token_missing", lambda one, other: "", "none was given"),
    ("token_malformed", lambda one, other: "let me in", "it is no token"),
    ("token_malformed", lambda one, other: "a" * (TOKEN_MAX + 1), "and the limit is"),
    ("token_signature", _forged, "not trusted here"),
    ("token_signature", _changed, "its signature is wrong"),
    ("token_expired", lambda one, other: one.token("ann", begins=time.time() - 100, seconds=50), "it expired at"),
    ("token_not_yet", lambda one, other: one.token("ann", begins=time.time() + 1_000), "it counts only from"),
    ("token_revoked", _revoked, "was revoked"),
]


def test_a_bad_token_is_refused_with_its_reason_counted_and_nothing_is_lost_for_others(tmp_path: Path) -> None:
    one, other = TestAuthority(tmp_path / "one"), TestAuthority(tmp_path / "other")
    made = [(kind, make(one, other), says) for kind, make, says in BAD_TOKENS]

    async def main() -> None:
        async with broker(access=access(one)) as guarded, calling(guarded.address, token=one.token("ann")) as good:
            await good.subscribe("s", "x > 0")
            for number, (kind, token, says) in enumerate(made):
                async with raw(guarded.address) as caller:
                    before = guarded.counts.refusals[kind]
                    caller.send(Hello((1, 2), "", None, "", token))
                    no = await caller.next(HelloRejected)
                    assert says in no.reason
                    assert no.reason.startswith("token: ")
                    assert "\n" not in no.reason
                    assert not no.retry
                    assert await caller.ended()
                    assert guarded.counts.refusals[kind] == before + 1
                (word,) = await good.publish(event(number, x=1))
                assert isinstance(word, Published)
                await good.notified(1)

    run(main())


def test_a_token_of_another_network_is_refused(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)

    async def main() -> None:
        async with broker(access=access(authority)) as one, calling(one.address, token=authority.token("ann")):
            pass
        keys = str(authority.issuer.public_keys)
        with pytest.raises(Exception, match="holds keys of network 'meetpoint', and this is 'other'"):
            await Broker(one.config.__class__(listen="127.0.0.1:0", network="other", access=Access(keys=keys))).start()

    run(main())


def test_a_hello_that_is_too_long_closes_before_it_is_read(authority: TestAuthority) -> None:
    async def main() -> None:
        async with broker(access=access(authority)) as one, raw(one.address) as caller:
            caller.send(Hello((1, 2), "", None, "", "a" * (8 << 10)))
            assert await caller.ended()
            assert sum(one.counts.refusals.values()) == 1
            assert not one.counts.refusals["token_malformed"]

    run(main())


def test_a_client_is_who_its_token_says(authority: TestAuthority) -> None:
    async def main() -> None:
        async with broker(access=access(authority)) as one, raw(one.address) as caller:
            caller.send(Hello((1, 2), "", None, "bob", authority.token("ann")))
            assert "the token is 'ann''s" in (await caller.next(HelloRejected)).reason
            assert one.counts.refusals["token_client"] == 1
            async with raw(one.address) as again:
                again.send(Hello((1, 2), "", None, "ann", authority.token("ann")))
                await until(lambda: [session.key for session in one._clients.sessions] == ["@/ann"], "she is in")

    run(main())


def test_a_token_that_expires_ends_its_session_and_a_new_one_goes_on(authority: TestAuthority) -> None:
    async def main() -> None:
        async with broker(access=access(authority)) as one, calling(one.address, token=authority.token("bob")) as bob:
            async with calling(one.address, token=authority.token("ann", seconds=1.2)) as ann:
                await ann.subscribe("s", "x > 0")
                assert "it expired at" in (await ann.next(GoAway)).reason
                assert await ann.ended()
            assert one.counts.refusals["token_expired"] == 1
            await bob.publish(event(1, x=1))
            async with calling(one.address, token=authority.token("ann")) as ann:
                assert await ann.get(Attach("s", 10)) == Stored()
                (came,) = await ann.notified(1)
                assert from_msgpack(came.content).id == "e1"

    run(main())


def test_a_token_that_is_revoked_ends_its_session_when_the_list_is_read_again(authority: TestAuthority) -> None:
    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("ann")) as ann,
            calling(one.address, token=authority.token("bob")) as bob,
        ):
            authority.issuer.revoke(authority.issuer.issued_to("ann"))
            one.reload()
            assert "was revoked" in (await ann.next(GoAway)).reason
            assert await ann.ended()
            assert one.counts.refusals["token_revoked"] == 1
            (word,) = await bob.publish(event(1, x=1))
            assert isinstance(word, Published)

    run(main())


# -- permissions -------------------------------------------------------------------------------------------------------


def test_only_what_the_token_permits_is_published(authority: TestAuthority) -> None:
    token = authority.token("ann", publish=Rights(("kind = 'a'",), ("x > 9",)))

    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("bob")) as bob,
            calling(one.address, token=token) as ann,
        ):
            await bob.subscribe("all", "TRUE")
            await is_refused(ann, Publish(event(1, kind="b")), "the token permits publishing only what is kind = 'a'")
            await is_refused(ann, Publish(event(2, kind="a", x=10)), "the token denies publishing what is x > 9")
            await is_refused(ann, Publish(b"\x93"), "event: is not MessagePack")
            assert one.counts.refusals["publish"] == 2
            (word,) = await ann.publish(event(3, kind="a", x=9))
            assert isinstance(word, Published)
            (came,) = await bob.notified(1)
            assert from_msgpack(came.content).id == "e3"

    run(main())


def test_a_filter_that_is_not_covered_by_the_permission_is_refused(authority: TestAuthority) -> None:
    token = authority.token("ann", subscribe=Rights(("kind = 'a'", "kind = 'b'"), ("x > 9",)))

    async def main() -> None:
        async with broker(access=access(authority)) as one, calling(one.address, token=token) as ann:
            for durable in (True, False):
                wide = Subscribe("s", "x > 0", SubscriptionOptions(durable=durable))
                await is_refused(ann, wide, "only what is (kind = 'a') OR (kind = 'b'); add to the filter: AND")
            denied = Subscribe("s", "kind IN ('a', 'b')")
            await is_refused(
                ann, denied, "the token denies what is x > 9, and the filter could accept it; add: AND NOT"
            )
            await ann.subscribe("s", "kind IN ('a', 'b') AND x < 5")
            await is_refused(ann, Update("s", "kind = 'c'"), "the token permits subscribing to only")
            assert await ann.get(Update("s", "kind = 'a' AND x < 3")) == Stored()
            assert one.counts.refusals["subscribe"] == 4

    run(main())


def test_what_is_no_longer_permitted_becomes_a_dead_letter_with_the_reason(authority: TestAuthority) -> None:
    async def main() -> None:
        async with broker(access=access(authority)) as one, calling(one.address, token=authority.token("bob")) as bob:
            async with calling(one.address, token=authority.token("ann")) as ann:
                await ann.subscribe("s", "x > 0")
                await ann.get(Detach("s"))
            await bob.publish(*[event(number, x=number) for number in range(1, 21)])
            narrow = authority.token("ann", subscribe=Rights(("x > 10",)))
            async with calling(one.address, token=narrow) as ann:
                await is_refused(ann, Attach("s", 100), "only what is x > 10")
                assert await ann.get(Update("s", "x > 10")) == Stored()
                assert await ann.get(Attach("s", 3)) == Stored()
                came = []
                for _ in range(10):
                    (one_more,) = await ann.notified(1)
                    came.append(from_msgpack(one_more.content).attributes["x"])
                    await ann.get(Acknowledge(one_more.event, one_more.names))
                assert came == list(range(11, 21))
                letters = await ann.get(DeadLettersRequest("s"))
                assert isinstance(letters, DeadLettersReply)
                assert len(letters.letters) == 10
                assert {dead_letter.reason for dead_letter in letters.letters} == {
                    "the token does not permit receiving it any longer"
                }
                assert one.counts.refusals["delivery"] == 10

    run(main())


def test_what_is_taken_once_and_not_permitted_is_dropped_and_counted(authority: TestAuthority) -> None:
    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("ann")) as ann,
            calling(one.address, token=authority.token("bob")) as bob,
        ):
            await ann.subscribe("s", "x > 0", durable=False)
            (session,) = [each for each in one._clients.sessions if each.key == "@/ann"]
            narrow = one._authorizer.read(authority.token("ann", subscribe=Rights(("x > 1",))))
            session.policy = SessionPolicy(narrow)  # as if the token had been another all along
            await bob.publish(event(1, x=1), event(2, x=2))
            (came,) = await ann.notified(1)
            assert from_msgpack(came.content).id == "e2"
            assert one.counts.refusals["delivery"] == 1

    run(main())


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_client_with_a_token_is_told_only_its_own_words(authority: TestAuthority) -> None:
    said = event(1, x=1, nested={"y": 2.5})

    async def main() -> None:
        async with broker(access=access(authority)) as one:
            token = authority.token("ann", tenant="it's \\ odd")
            async with calling(one.address, token=token) as ann:
                await ann.subscribe("prices/eu", "x > 0")
                await ann.publish(said)
                (came,) = await ann.notified(1)
                assert came.content == said
                assert came.names == ("prices/eu",)
                located = await ann.get(Locate("prices/eu"))
                assert isinstance(located, Located)
                assert located.filter == "x > 0"
                listed = await ann.get(SubscriptionsRequest())
                assert isinstance(listed, SubscriptionsReply)
                (held,) = listed.subscriptions
                assert (held.name, held.filter, held.terms.owner) == ("prices/eu", "x > 0", "ann")
                no = await ann.get(Update("nothing", "x > 1"))
                assert isinstance(no, Refused)
                assert 'no subscription "nothing" here' in no.reason
                story = await ann.get(JournalRequest(id="e1"))
                assert isinstance(story, JournalReply)
                assert {line.step for line in story.lines} >= {"published", "taken", "notified"}
                assert [line.content for line in story.lines if line.content] == [said]
                assert {name for line in story.lines for name in line.names} == {"prices/eu"}
                assert await ann.get(Reject(came.event, came.names, "no", final=True)) == Stored()
                letters = await ann.get(DeadLettersRequest())
                assert isinstance(letters, DeadLettersReply)
                (dead_letter,) = letters.letters
                assert (dead_letter.names, dead_letter.content, dead_letter.reason) == (("prices/eu",), said, "no")
                assert await ann.get(Unsubscribe("prices/eu")) == Stored()

    run(main())


def test_no_client_reaches_what_is_another_clients(authority: TestAuthority) -> None:
    """Present, unsubscribe, update, acknowledge, reject, dead letters, journal: by its name, and by its full name."""

    async def main() -> None:
        async with (
            broker(access=access(authority), node=HASTY) as one,
            calling(one.address, token=authority.token("ann", tenant="acme")) as ann,
            calling(one.address, token=authority.token("bob", tenant="acme")) as bob,
        ):
            await ann.subscribe("s", "x > 0")
            await ann.publish(event(1, x=1))
            (came,) = await ann.notified(1)
            assert await ann.get(Reject(came.event, came.names, "secret", final=True)) == Stored()
            await ann.publish(event(2, x=2))
            (waiting,) = await ann.notified(1)
            for name in ("s", "@acme/ann/s", "/ann/s", "../ann/s", "ann/s"):
                await is_refused(bob, Attach(name, 10), "there is no subscription", retry=True)
                await is_refused(bob, Unsubscribe(name), "there is no subscription", retry=True)
                await is_refused(bob, Update(name, paused=True), "there is no subscription", retry=True)
                assert await bob.get(Locate(name)) == Located(None)
                assert await bob.get(Detach(name)) == Stored()  # of nobody's
                assert await bob.get(Acknowledge(waiting.event, (name,))) == Stored()
                assert await bob.get(Reject(waiting.event, (name,), "mine", final=True)) == Stored()
                assert await bob.get(DeadLettersRequest(name)) == DeadLettersReply((), False)
                assert await bob.get(SubscriptionsRequest(after=name)) == SubscriptionsReply((), False)
            assert await bob.get(DeadLettersRequest()) == DeadLettersReply((), False)
            assert await bob.get(Discard(came.event)) == Stored()
            assert await bob.get(Forget(came.event)) == Stored()
            assert await bob.get(Forget(came.event, "@acme/ann/")) == Stored()
            for asked in (JournalRequest("e1"), JournalRequest("@acme/ann/e1"), JournalRequest(key=came.event)):
                assert await bob.get(asked) == JournalReply(())
            assert await bob.get(SubscriptionsRequest()) == SubscriptionsReply((), False)
            await is_refused(bob, SubscriptionsRequest("ann"), "the token lists bob's subscriptions only")
            await is_refused(bob, Subscribe("t", "x > 0", SubscriptionOptions(owner="ann")), "the token is 'bob''s")
            # Nothing of it has reached her.
            letters = await ann.get(DeadLettersRequest())
            assert isinstance(letters, DeadLettersReply)
            assert [from_msgpack(dead_letter.content).id for dead_letter in letters.letters] == ["e1"]
            again = (await ann.notified(1))[0]  # the second was not acknowledged, and comes again
            assert (again.event, again.redelivered) == (waiting.event, True)
            assert await ann.get(Acknowledge(again.event, again.names)) == Stored()

    run(main())


def test_two_clients_with_one_name_each_have_their_own(authority: TestAuthority) -> None:
    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("ann")) as ann,
            calling(one.address, token=authority.token("bob")) as bob,
        ):
            await ann.subscribe("s", "x > 0")
            await bob.subscribe("s", "x > 1")
            await ann.publish(event(1, x=1))
            await bob.publish(event(2, x=2))
            assert [from_msgpack(one.content).id for one in await ann.notified(2)] == ["e1", "e2"]
            assert [from_msgpack(one.content).id for one in await bob.notified(1)] == ["e2"]
            assert await bob.get(Unsubscribe("s")) == Stored()
            await ann.publish(event(3, x=2))
            assert len(await ann.notified(1)) == 1
            assert not [message for message in ann.inbox if isinstance(message, Ended)]

    run(main())


def test_a_dead_letter_of_two_clients_is_forgotten_by_one_of_them(authority: TestAuthority) -> None:
    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("ann")) as ann,
            calling(one.address, token=authority.token("bob")) as bob,
        ):
            await ann.subscribe("s", "x > 0")
            await bob.subscribe("s", "x > 0")
            await ann.publish(event(1, x=1))
            for each, why in ((ann, "too hot"), (bob, "too cold")):
                (came,) = await each.notified(1)
                assert await each.get(Reject(came.event, came.names, why, final=True)) == Stored()
            for each, why in ((ann, "too hot"), (bob, "too cold")):
                letters = await each.get(DeadLettersRequest())
                assert isinstance(letters, DeadLettersReply)
                (dead_letter,) = letters.letters
                assert (dead_letter.names, dead_letter.reason) == (("s",), why)
            assert await ann.get(Discard(came.event)) == Stored()
            assert await ann.get(DeadLettersRequest()) == DeadLettersReply((), False)
            letters = await bob.get(DeadLettersRequest())
            assert isinstance(letters, DeadLettersReply)
            assert [dead_letter.reason for dead_letter in letters.letters] == ["too cold"]

    run(main())


def test_an_id_that_another_client_used_suppresses_nothing(authority: TestAuthority) -> None:
    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("ann")) as ann,
            calling(one.address, token=authority.token("bob")) as bob,
        ):
            await ann.subscribe("s", "x > 0")
            await bob.publish(event(1, x=13))  # who knew that ann's next event has this id
            await ann.publish(event(1, x=1))
            assert [from_msgpack(each.content).attributes["x"] for each in await ann.notified(2)] == [13, 1]
            await ann.publish(event(1, x=1), event(2, x=2))  # her own is the same event
            assert [from_msgpack(each.content).id for each in await ann.notified(1)] == ["e2"]

    run(main())


@pytest.mark.parametrize(
    "what",
    [
        Publish(event(1, **{"$tenant": "acme"})),
        Publish(event(1, **{"$tenant": {"x": 1}})),
        Publish(event(1, **{"$anything": 1})),
        Subscribe("s", "`$tenant` = 'acme'"),
        Subscribe("s", "x > 1 OR `$tenant`.x IS NULL"),
        Subscribe("s", "NOT (`$tenant` IS NULL)"),
    ],
)
def test_what_brokers_keep_for_themselves_is_refused(authority: TestAuthority, what: RequestBody) -> None:
    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("ann", tenant="globex")) as ann,
        ):
            await is_refused(ann, what, "network's own")
            assert one.counts.refusals["reserved"] == 1

    run(main())


@pytest.mark.parametrize("text", ["x = 1) OR (x = 2", "x = 1 --", "x = 1 OR", "(x = 1", "'"])
def test_a_filter_that_would_break_out_of_its_brackets_is_none(authority: TestAuthority, text: str) -> None:
    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("ann", tenant="acme")) as ann,
        ):
            word = await ann.get(Subscribe("s", text))
            assert isinstance(word, Refused)
            assert "tenant" not in word.reason
            assert one.counts.refusals["request"] == 1

    run(main())


def test_what_there_was_before_tokens_is_for_those_who_operate(authority: TestAuthority, tmp_path: Path) -> None:
    """Its filter says nothing of tenants: what is looked at in the end keeps their events from it."""
    data = str(tmp_path / "data")

    async def main() -> None:
        async with broker(data=data, name="one") as one, calling(one.address) as client:
            await client.subscribe("old", "x > 0")
            await client.publish(event(1, x=1))
        async with (
            broker(data=data, name="one", access=access(authority)) as one,
            calling(one.address, token=authority.token("ann", tenant="acme")) as ann,
            calling(one.address, token=authority.token("root", roles=("operate",))) as root,
        ):
            await is_refused(ann, Attach("old", 10), "there is no subscription", retry=True)
            await ann.publish(event(2, x=2))
            await root.publish(event(3, x=3))
            assert await root.get(Attach("old", 10)) == Stored()
            assert [from_msgpack(each.content).id for each in await root.notified(2)] == ["e1", "e3"]
            await until(lambda: one.counts.refusals["delivery"] == 1, "the tenant's is held back")
            letters = await root.get(DeadLettersRequest("old"))
            assert isinstance(letters, DeadLettersReply)
            (dead_letter,) = letters.letters
            assert dead_letter.reason == "the event is of another tenant"
            assert await root.get(Unsubscribe("old")) == Stored()

    run(main())


# -- roles -------------------------------------------------------------------------------------------------------------

OF_OPERATORS: tuple[RequestBody, ...] = (Declare("attributes:\n  x: integer\n"), Leave())
OF_OBSERVERS: tuple[RequestBody, ...] = (StatusRequest(), Lookup(bytes(20)))


@contextlib.asynccontextmanager
async def a_dead_letter(authority: TestAuthority, token: str) -> AsyncIterator[tuple[Caller, Caller, Notification]]:
    """A client of a tenant that did not take an event, another client with a token, and the event."""
    async with (
        broker(access=access(authority)) as one,
        calling(one.address, token=authority.token("ann", tenant="acme")) as ann,
        calling(one.address, token=token) as other,
    ):
        await ann.subscribe("s", "x > 0")
        await ann.publish(event(1, x=1))
        (came,) = await ann.notified(1)
        await ann.get(Reject(came.event, came.names, "no", final=True))
        yield ann, other, came


def test_without_a_role_nothing_of_the_network_is_shown_or_changed(authority: TestAuthority) -> None:
    async def main() -> None:
        async with broker(access=access(authority)) as one, calling(one.address, token=authority.token("ann")) as ann:
            for what in OF_OPERATORS:
                await is_refused(ann, what, "the role operate")
            for what in OF_OBSERVERS:
                await is_refused(ann, what, "observe or operate")
            assert one.counts.refusals["role"] == 4
            assert isinstance(await ann.get(BrokersRequest()), BrokersReply)

    run(main())


def test_who_observes_reads_everything_and_changes_nothing(authority: TestAuthority) -> None:
    async def main() -> None:
        token = authority.token("eve", roles=("observe",))
        async with a_dead_letter(authority, token) as (_, eve, came):
            assert isinstance(await eve.get(StatusRequest()), BrokerStatus)
            listed = await eve.get(SubscriptionsRequest())
            assert isinstance(listed, SubscriptionsReply)
            (held,) = listed.subscriptions
            assert (held.name, held.terms.owner) == ("@acme/ann/s", "@acme/ann")
            assert held.filter == "(x > 0) AND `$tenant` = 'acme'"
            story = await eve.get(JournalRequest("@acme/ann/e1"))
            assert isinstance(story, JournalReply)
            assert "notified" in {line.step for line in story.lines}
            letters = await eve.get(DeadLettersRequest("@acme/ann/s"))
            assert isinstance(letters, DeadLettersReply)
            assert len(letters.letters) == 1
            assert await eve.get(Discard(came.event)) == Stored()  # of her own, which there are none
            for what in OF_OPERATORS:
                await is_refused(eve, what, "the role operate")
            await is_refused(eve, Unsubscribe("@acme/ann/s"), "there is no subscription", retry=True)
            assert await eve.get(DeadLettersRequest("@acme/ann/s")) == letters

    run(main())


def test_who_operates_acts_on_everything_and_takes_nobodys_events(authority: TestAuthority) -> None:
    async def main() -> None:
        token = authority.token("root", roles=("operate",))
        async with a_dead_letter(authority, token) as (ann, root, came):
            full = "@acme/ann/s"
            for what in (Attach(full, 10), Subscribe(full, "x > 0"), Acknowledge(came.event, (full,))):
                await is_refused(root, what, "is another client's")
            await is_refused(root, Update(full, "x > 5"), "is its owner's to change")
            located = await root.get(Locate(full))
            assert isinstance(located, Located)
            assert located.host is not None
            assert await root.get(Update(full, paused=True)) == Stored()
            assert await root.get(Discard(came.event)) == Stored()
            assert await ann.get(DeadLettersRequest()) == DeadLettersReply((), False)
            assert await root.get(Unsubscribe(full)) == Stored()
            ended = await ann.next(Ended)
            assert (ended.name, ended.moved) == ("s", False)
            assert await root.get(Declare("attributes:\n  x: integer\n")) == Stored()
            await root.subscribe("own", "x > 0")
            await root.publish(event(2, x=2))
            assert (await root.notified(1))[0].names == ("own",)
            await is_refused(root, Publish(event(3, y=2)), "y is not in the schema")
            await ann.subscribe("t", "x > 0")  # `$tenant` is no business of schemas
            assert isinstance((await ann.publish(event(4, x=4)))[0], Published)
            await ann.notified(1)
            await is_refused(root, Leave(), "this is the last broker")

    run(main())


def test_a_policy_knows_every_question(authority: TestAuthority) -> None:
    """A request that nobody has thought of here would be permitted to everybody."""
    verifier = Verifier(authority.access["keys"], None, authority.network)
    policy = SessionPolicy(verifier.read(authority.token("ann"), time.time()))
    assert set(policy._inward) == set(typing.get_args(RequestBody))


def _with_her_names(said: Any) -> Any:
    """Return an invented message with names of hers in place of some texts."""
    if isinstance(said, list):
        return [_with_her_names(each) for each in said]
    hers = {"a": "@acme/ann/s", "1/2/3": "@acme/ann/", "ff/0/1": "@acme/ann/e1"}
    return hers.get(said, said) if isinstance(said, str) else said


@pytest.mark.parametrize(("seed", "tenant"), [(1, "acme"), (2, "globex"), (3, "")])
def test_whatever_a_client_says_nothing_of_another_changes(authority: TestAuthority, seed: int, tenant: str) -> None:
    async def main() -> None:
        async with (
            broker(access=access(authority)) as one,
            calling(one.address, token=authority.token("ann", tenant="acme")) as ann,
            calling(one.address, token=authority.token("bob", tenant=tenant)) as bob,
        ):
            await ann.subscribe("s", "x > 0")
            await ann.publish(event(1, x=1))
            (came,) = await ann.notified(1)
            assert await ann.get(Reject(came.event, came.names, "no", final=True)) == Stored()
            await ann.publish(event(2, x=2))
            (waiting,) = await ann.notified(1)
            before = [await ann.get(asked) for asked in (SubscriptionsRequest(), DeadLettersRequest(), Locate("s"))]
            inventor = MessageGenerator(seed, (came.event.home,))
            for number in range(1, 2_001):
                said = _with_her_names(msgspec.msgpack.decode(inventor.message(Request)))
                bob.writer.write(frames([msgspec.msgpack.encode([said[0], number, *said[2:]])], bob.version))
                if not number % 100:
                    await bob.told(number)
            assert [
                await ann.get(asked) for asked in (SubscriptionsRequest(), DeadLettersRequest(), Locate("s"))
            ] == before
            assert one.node.dead_letters("@acme/ann/s")
            assert not [each for each in ann.inbox if isinstance(each, Ended | Notification)]
            await ann.publish(event(3, x=3))
            (third,) = await ann.notified(1)
            assert from_msgpack(third.content).id == "e3"
            for each in (waiting, third):
                assert await ann.get(Acknowledge(each.event, each.names)) == Stored()
            assert one.node.snapshot().queued == 0
            assert not one.counts.totals["step_errors"]
            one.node.check()

    run(main())
