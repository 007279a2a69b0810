"""Authorization of clients: the tokens by which they may connect, and the policy that each session follows.

There are three kinds of clients. Most act on what is their own (`tenancy`). One that observes reads everything. One
that operates acts on everything: it says full names, and is shown full names. No client takes another's events.

Tokens are read in the handshake, and checked again while their sessions last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from meetpoint.api.client_messages import (
    BrokersRequest,
    DeadLetterInfo,
    DeadLettersReply,
    DeadLettersRequest,
    Discard,
    Follow,
    FollowedRequest,
    HistoryRequest,
    HostedSubscription,
    JournalEntry,
    JournalReply,
    JournalRequest,
    ProgressRequest,
    RecentRequest,
    RequestBody,
    ResponseBody,
    SchemaRequest,
    StatusRequest,
    StreamsRequest,
    SubscriptionsReply,
    SubscriptionsRequest,
    ViewRequest,
)
from meetpoint.api.outcomes import Located, Refused
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
from meetpoint.broker.clients.tenancy import MARK, ReservedError, Scope, event_outside
from meetpoint.broker.config import BrokerConfig
from meetpoint.broker.observe.logs import Log
from meetpoint.errors import EventError, FilterError
from meetpoint.language.events.event import Event
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.schema.schema import Schema
from meetpoint.language.syntax.lexer import TEXT_LENGTH_MAX
from meetpoint.node.home.subscription_table import attributes_of, event_of
from meetpoint.security.grants import Grant, Permit, TokenError, reserved_name

if TYPE_CHECKING:
    from meetpoint.security.tokens import Verifier

__all__ = ["NAME_MAX", "Authorizer", "DeniedError", "SessionPolicy"]

NAME_MAX: Final = 200
"""The longest name of a subscription that a client may choose, in characters."""


class DeniedError(Exception):
    """A request is not permitted; `kind` is one of `observe.logs.KINDS`."""

    def __init__(self, kind: str, reason: str, *, retry: bool = False) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason
        self.retry = retry


class SessionPolicy:
    """The rights of one client, applied to its requests and to what it is told."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.scope = Scope(grant.tenant, grant.client)
        self.permit = Permit(grant)
        self.sees_all = grant.may_observe
        """Whether the client is shown everything, with the names inside the network."""
        self.schema: Callable[[], Schema | None] = lambda: None
        """Returns the schema to read filters with."""
        self.filter_of: Callable[[str], str | None] = lambda name: None
        """Returns the filter of a subscription that is hosted here, by its full name."""
        self._inward: dict[type, Callable[[Any], RequestBody]] = {
            Publish: self._publish,
            Acknowledge: lambda what: Acknowledge(what.event, self._own_names(what.names)),
            Reject: lambda what: Reject(what.event, self._own_names(what.names), what.reason, what.final),
            Subscribe: self._subscribe,
            Update: self._update,
            Attach: self._attach,
            Detach: lambda what: Detach(self._name(what.name)),
            Unsubscribe: lambda what: Unsubscribe(self._name(what.name)),
            Locate: lambda what: Locate(self._name(what.name)),
            Forget: lambda what: Forget(what.event, "" if grant.may_operate else self.scope.prefix),
            Discard: lambda what: Forget(what.event, "" if grant.may_operate else self.scope.prefix),
            SubscriptionsRequest: self._subscriptions,
            DeadLettersRequest: self._dead_letters,
            JournalRequest: self._journal,
            HistoryRequest: self._history,
            ProgressRequest: lambda what: ProgressRequest(self.scope.name_within(what.publisher)),
            StreamsRequest: _unchanged,
            BrokersRequest: _unchanged,
            SchemaRequest: _unchanged,
            StatusRequest: self._observes,
            ViewRequest: self._observes,
            RecentRequest: self._observes,
            Follow: self._follow,
            FollowedRequest: self._follow,
            Lookup: self._observes,
            Declare: self._operates,
            Leave: self._operates,
        }

    # -- what it asks --------------------------------------------------------------------------------------------------

    def inward(self, what: RequestBody) -> RequestBody:
        """Return a request as the broker takes it; raise DeniedError where the client has no right to it."""
        return self._inward[type(what)](what)

    def _publish(self, what: Publish) -> Publish:
        try:
            content = self.scope.event_within(what.event)
            reason = self.permit.why_not_publish(attributes_of(content))
        except ReservedError as error:
            raise DeniedError("reserved", str(error)) from None
        except EventError as error:
            raise DeniedError("request", str(error)) from None
        if reason is not None:
            raise DeniedError("publish", f"event: {reason}")
        return Publish(content, what.after)

    def _subscribe(self, what: Subscribe) -> Subscribe:
        name, scope, terms = self._own_name(what.name), self.scope, what.terms
        if terms.owner not in ("", scope.client):
            raise DeniedError(
                "role", f"the owner is {terms.owner!r}, and the token is {scope.client!r}'s; leave the owner out"
            )
        owned = SubscriptionOptions(terms.durable, scope.owner, terms.labels, terms.lifetime_us, terms.paused)
        return Subscribe(name, self._filter(what.filter), owned)

    def _update(self, what: Update) -> Update:
        name = self._name(what.name)
        if what.filter is None:
            return Update(name, None, what.labels, what.lifetime_us, what.paused)
        if name.startswith(MARK) and not name.startswith(self.scope.prefix):
            raise DeniedError("role", f"the filter of {name} is its owner's to change; end it, or ask the owner")
        return Update(name, self._filter(what.filter), what.labels, what.lifetime_us, what.paused)

    def _attach(self, what: Attach) -> Attach:
        name = self._own_name(what.name)
        held = self.filter_of(name)
        if held is not None:
            reason = self.permit.why_not_subscribe(parse_filter(self.scope.filter_outside(held)))
            if reason is not None:
                raise DeniedError(
                    "subscribe", f"{what.name}: {reason}, update the subscription, or connect with another token"
                )
        return Attach(name, what.window)

    def _filter(self, text: str) -> str:
        """Return a filter that the client may subscribe to, for its tenant's events alone."""
        try:
            read = parse_filter(text, self.schema())
        except FilterError as error:
            raise DeniedError("request", str(error)) from None
        self._check_filter(read)
        within = self.scope.filter_within(text)
        if len(within) > TEXT_LENGTH_MAX:
            raise DeniedError(
                "request",
                f"the filter has {len(text):,} characters; with a token at most "
                f"{TEXT_LENGTH_MAX - len(within) + len(text):,} are read: split it",
            )
        return within

    def _check_filter(self, read: Filter) -> None:
        if (name := reserved_name(read)) is not None:
            raise DeniedError("reserved", f"{name} is the network's own attribute; leave it out of the filter")
        if (reason := self.permit.why_not_subscribe(read)) is not None:
            raise DeniedError("subscribe", reason)

    def _name(self, name: str) -> str:
        """Return the full name to act on: the client's own, or any for one that operates."""
        return name if self.grant.may_operate else self._own_name(name)

    def _own_name(self, name: str) -> str:
        """Return the full name of a subscription whose events the client takes."""
        if not 0 < len(name) <= NAME_MAX:
            raise DeniedError("request", f"the name has {len(name)} characters; give it 1 to {NAME_MAX}")
        if not self.grant.may_operate:
            return self.scope.name_within(name)
        if name.startswith(MARK):
            raise DeniedError("role", f"{name} is another client's; its events are taken with a token of its own")
        return name

    def _own_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if not self.grant.may_operate:
            return self.scope.names_within(names)
        return tuple(map(self._own_name, names))

    def _history(self, what: HistoryRequest) -> HistoryRequest:
        try:
            self._check_filter(parse_filter(what.filter, self.schema()))
        except FilterError as error:
            raise DeniedError("request", str(error)) from None
        return what

    def _subscriptions(self, what: SubscriptionsRequest) -> SubscriptionsRequest:
        if self.sees_all:
            return what
        scope = self.scope
        if what.owner not in ("", scope.client):
            raise DeniedError("role", f"the token lists {scope.client}'s subscriptions only; leave the owner out")
        return SubscriptionsRequest(scope.owner, what.labels, what.after and scope.name_within(what.after))

    def _dead_letters(self, what: DeadLettersRequest) -> DeadLettersRequest:
        if self.sees_all:
            return what
        return DeadLettersRequest(what.name and self.scope.name_within(what.name), what.after)

    def _journal(self, what: JournalRequest) -> JournalRequest:
        if self.sees_all:
            return what
        return JournalRequest(what.id and self.scope.name_within(what.id), what.key)

    def _follow(self, what: Follow | FollowedRequest) -> RequestBody:
        """Follow an own event by the id that the client gave it, and others' by their full ids."""
        self._observes(what)
        return what if what.id.startswith(MARK) else msgspec.structs.replace(what, id=self.scope.name_within(what.id))

    def _observes(self, what: RequestBody) -> RequestBody:
        if not self.grant.may_observe:
            raise DeniedError("role", "this is for clients that observe or operate; ask for a token with that role")
        return what

    def _operates(self, what: RequestBody) -> RequestBody:
        if not self.grant.may_operate:
            raise DeniedError("role", "this is for clients that operate; ask for a token with the role operate")
        return what

    # -- what it is told -----------------------------------------------------------------------------------------------

    def outward(self, word: ResponseBody) -> ResponseBody:
        """Return an answer in the client's own words."""
        scope = self.scope
        match word:
            case Refused(reason, retry):
                return Refused(scope.text_outside(reason), retry)
            case Located(host, filter_):
                return Located(host, scope.filter_outside(filter_))
            case SubscriptionsReply(held, more) if not self.sees_all:
                return SubscriptionsReply(tuple(map(self._held, held)), more)
            case DeadLettersReply(letters, more) if not self.sees_all:
                return DeadLettersReply(tuple(map(self._dead_letter, letters)), more)
            case JournalReply(lines) if not self.sees_all:
                return JournalReply(tuple(self._lines(lines)))
        return word

    def _held(self, held: HostedSubscription) -> HostedSubscription:
        scope = self.scope
        terms = msgspec.structs.replace(held.terms, owner=scope.client)
        (name,) = scope.names_outside((held.name,))
        return msgspec.structs.replace(held, name=name, filter=scope.filter_outside(held.filter), terms=terms)

    def _dead_letter(self, dead_letter: DeadLetterInfo) -> DeadLetterInfo:
        names, reason = self.scope.own(dead_letter.names), self.scope.text_outside(dead_letter.reason)
        return DeadLetterInfo(
            dead_letter.event, names, event_outside(dead_letter.content)[1], reason, dead_letter.at_us
        )

    def _lines(self, lines: tuple[JournalEntry, ...]) -> list[JournalEntry]:
        """Return the journal of an own event; of any event, the entries about the client's own names."""
        told = []
        is_own = any(line.content and event_of(line.content).id.startswith(self.scope.prefix) for line in lines)
        for line in lines:
            names = self.scope.own(line.names)
            if names or (is_own and not line.names):
                content = event_outside(line.content)[1] if line.content and is_own else b""
                detail = self.scope.text_outside(line.detail)
                told.append(JournalEntry(line.at_us, line.event, line.step, line.home, names, detail, content))
        return told

    def event_outside(self, content: bytes) -> bytes:
        """Return an event as the client receives it."""
        return event_outside(content)[1]

    def may_read(self, tenant: str, event: Event) -> bool:
        """Return whether an event of the archive may be handed over."""
        is_all = self.grant.subscribe.is_everything
        return tenant == self.scope.tenant and (is_all or self.permit.may_receive(event.attributes))

    def why_not_deliver(self, content: bytes) -> str | None:
        """Return why an event may not be delivered, by its tenant and the token's present rights, or None."""
        if event_outside(content)[0] != self.scope.tenant:
            return "the event is of another tenant"
        if not self.grant.subscribe.is_everything and not self.permit.may_receive(attributes_of(content)):
            return "the token does not permit receiving it any longer"
        return None


def _unchanged(what: RequestBody) -> RequestBody:
    return what


class Authorizer:
    """The tokens of one broker; without keys in its configuration every client may do everything."""

    def __init__(self, config: BrokerConfig, log: Log, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._log = log
        self._clock = clock
        self._verifier: Verifier | None = None
        self.reload()

    @property
    def is_guarded(self) -> bool:
        """Whether clients need tokens."""
        return self._verifier is not None

    def reload(self) -> None:
        """Read the files of keys and revoked tokens again; where that fails, what was read before stays."""
        said = self._config.access
        if said.keys is not None:
            from meetpoint.security.tokens import Verifier

            is_first = self._verifier is None
            self._verifier = Verifier(said.keys, said.revoked, self._config.network)
            if not is_first:
                self._log.write(logging.INFO, "tokens_reloaded", keys=said.keys, revoked=said.revoked)

    def read(self, token: str) -> Grant:
        """Return what a token grants; raise TokenError where it is refused. Called only where tokens are needed."""
        assert self._verifier is not None
        return self._verifier.read(token, self._clock())

    def admit(self, client: str, token: str) -> SessionPolicy | None:
        """Return the policy of a client that says hello, None for everything; raise DeniedError where it may not
        connect.
        """
        if self._verifier is None:
            return None
        try:
            grant = self.read(token)
            if client not in ("", grant.client):
                raise DeniedError(
                    "token_client",
                    f"you say that you are {client!r}, and the token is {grant.client!r}'s; leave the name out, "
                    "or connect with a token of that name",
                )
            return SessionPolicy(grant)
        except TokenError as error:
            raise DeniedError(f"token_{error.kind}", str(error)) from None

    def why_not(self, policy: SessionPolicy) -> DeniedError | None:
        """Return why a token that was accepted before does not count any longer, or None."""
        if self._verifier is None:
            return None
        try:
            self._verifier.check(policy.grant, self._clock())
        except TokenError as error:
            return DeniedError(f"token_{error.kind}", str(error))
        return None
