"""/subscriptions: durable subscriptions by REST, in the shape of the CloudEvents Subscriptions API.

`protocol` is `HTTP` (each event is sent to `sink`, see `webhooks`) or `PULL` (it is read by GET /events?durable=ID, by
WebSocket or by any client). What there is belongs to the client whose token made it, and is kept in the gateway's data
folder, with that token and the secret, readable by its owner alone.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from meetpoint.api.outcomes import Refused
from meetpoint.api.requests import Unsubscribe, Update
from meetpoint.broker.storage.folder import Lock
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.client.network import Network
from meetpoint.gateway.connections import Caller, Lease
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.http.errors import ApiError, ProblemIs
from meetpoint.gateway.http.routes import JSON, Answer, Body, Call, Route, answer
from meetpoint.gateway.subscriptions.dialects import Dialect, filter_text
from meetpoint.gateway.subscriptions.signatures import make_secret, read_secret
from meetpoint.gateway.subscriptions.sinks import URL_MAX, check_sink
from meetpoint.gateway.subscriptions.webhooks import PARALLEL_MAX, Sender, Webhook
from meetpoint.language.timestamps import format_timestamp
from meetpoint.security.files import PRIVATE, FileError, make_folder, read, replace

__all__ = ["SubscriptionIs", "SubscriptionRequest", "Subscriptions"]

FILE: Final = "subscriptions.json"
_WEBHOOK: Final = "webhook:"
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)

Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Id = Annotated[str, Meta(pattern=f"^{_ID.pattern}$")]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the gateway is to know beside."""

    name: Annotated[Id, Meta(description="The id of the subscription; without one it gets one")] | None = None
    parallel: Annotated[int, Meta(ge=1, le=PARALLEL_MAX, description="Requests to the sink at a time")] = 1


class ProtocolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the sink is spoken to."""

    secret: (
        Annotated[str, Meta(description="What requests are signed with, whsec_ and base64; without one it gets one")]
        | None
    ) = None
    method: Literal["POST"] = "POST"


class SubscriptionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A subscription as it is wanted."""

    protocol: Literal["HTTP", "PULL"]
    sink: Annotated[str, Meta(min_length=1, max_length=URL_MAX, description="Where events go: HTTP only")] | None = None
    source: Annotated[Text, Meta(description="Only CloudEvents of this source")] | None = None
    types: Annotated[list[Text], Meta(max_length=64, description="Only CloudEvents of these types")] | None = None
    filters: Annotated[list[Dialect], Meta(max_length=64, description="All of these accept")] | None = None
    config: Config | None = None
    protocolsettings: ProtocolSettings | None = None


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a subscription is."""

    state: str
    """`ready` (PULL), `starting`, `delivering`, `failing` (it goes on trying), `stopped` (it does not)."""
    problem: str | None = None
    delivered: int = 0
    failed: int = 0
    consent: Literal["granted", "unknown", "refused"] | None = None
    """Whether the sink agreed to get events; `unknown`: it does not know the question. None where it was not asked."""
    per_minute: int | None = None
    """How many requests the sink gets at most; None: as many as come."""


class SubscriptionIs(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A subscription as it is."""

    id: str
    protocol: Literal["HTTP", "PULL"]
    filter: str
    """All conditions together, in Meetpoint's language."""
    created: str
    status: Status
    sink: str | None = None
    source: str | None = None
    types: list[str] | None = None
    filters: list[Dialect] | None = None
    config: Config | None = None
    protocolsettings: ProtocolSettings | None = None
    """The secret is shown once, in the answer to the request that made it."""


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription as it is kept."""

    id: str
    owner: str
    token: str
    secret: str
    filter: str
    created: str
    wanted: SubscriptionRequest

    @property
    def name(self) -> str:
        """The durable subscription's name."""
        return f"{_WEBHOOK}{self.id}" if self.wanted.protocol == "HTTP" else self.id

    @property
    def parallel(self) -> int:
        return 1 if self.wanted.config is None else self.wanted.config.parallel


class Subscriptions:
    """The part that keeps subscriptions, and the webhooks of those that have a sink."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._webhooks: dict[tuple[str, str], Webhook] = {}
        self._changing = asyncio.Lock()
        self._lock: Lock | None = None

    @property
    def routes(self) -> Sequence[Route]:
        missing = Answer("There is none of this id", ProblemIs)
        exists = Answer("There is one of this name", ProblemIs)
        full = Answer("Too many subscriptions", ProblemIs)
        return (
            Route(
                method="GET",
                path="/subscriptions",
                handler=self._list,
                summary="All subscriptions of this client that were made here",
                answers={200: Answer("By id", list[SubscriptionIs])},
            ),
            Route(
                method="POST",
                path="/subscriptions",
                handler=self._create,
                summary="Make a subscription",
                body=Body({JSON: SubscriptionRequest}),
                answers={
                    201: Answer("It is made; what is published from now on comes", SubscriptionIs),
                    409: exists,
                    429: full,
                },
            ),
            Route(
                method="GET",
                path="/subscriptions/{id}",
                handler=self._get,
                summary="One subscription",
                answers={200: Answer("As it is", SubscriptionIs), 404: missing},
            ),
            Route(
                method="PUT",
                path="/subscriptions/{id}",
                handler=self._update,
                summary="Change a subscription: all of it but its id and its protocol",
                body=Body({JSON: SubscriptionRequest}),
                answers={
                    200: Answer("It is changed", SubscriptionIs),
                    404: missing,
                    409: Answer("That cannot be changed", ProblemIs),
                },
            ),
            Route(
                method="DELETE",
                path="/subscriptions/{id}",
                handler=self._delete,
                summary="End a subscription, with all that waits for it",
                answers={204: Answer("It is gone"), 404: missing},
            ),
        )

    async def start(self, gateway: Gateway) -> None:
        self._gateway = gateway
        gateway.counts.gauges.append(lambda: {"subscriptions": float(len(self._kept))})
        folder = gateway.settings.data
        self._path = None if folder is None else Path(folder) / FILE
        if self._path is not None:
            make_folder(self._path.parent)
            self._lock = Lock(self._path.parent)  # two gateways would send to each webhook twice
            if self._path.exists():
                try:
                    kept = msgspec.json.decode(read(self._path, "the gateway's subscriptions"), type=list[_Kept])
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    self._lock.release()
                    raise FileError(f"{self._path}: is damaged: {error}; put it aside, and make them again") from None
                self._kept = {(each.owner, each.id): each for each in kept}
        self._sender = Sender(gateway.settings, gateway.counts.add)
        for each in self._kept.values():
            self._send(each)

    async def stop(self) -> None:
        await asyncio.gather(*(webhook.close() for webhook in self._webhooks.values()))
        self._webhooks.clear()
        await self._sender.close()
        if self._lock is not None:
            self._lock.release()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _list(self, call: Call) -> Response:
        mine = sorted((each for each in self._kept.values() if each.owner == call.caller.owner), key=lambda one: one.id)
        return answer([self._shown(each) for each in mine])

    async def _get(self, call: Call) -> Response:
        return answer(self._shown(self._find(call)))

    async def _create(self, call: Call) -> Response:
        wanted: SubscriptionRequest = call.body
        owner = call.caller.owner
        async with self._changing, call.lease() as lease:
            most = call.gateway.settings.limits.subscriptions_per_client
            if sum(each.owner == owner for each in self._kept.values()) >= most:
                raise ApiError(429, "subscriptions", f"there are {most:,} subscriptions; end some")
            name = None if wanted.config is None else wanted.config.name
            kept = await self._checked(call.caller, lease, wanted, name or f"sub-{secrets.token_hex(6)}", None)
            located = await lease.net.locate(kept.name)
            if (owner, kept.id) in self._kept or located.host is not None:
                raise ApiError(409, "exists", f"there is a subscription {kept.id!r}; take another name")
            made = await lease.net.subscribe(
                kept.filter, durable=kept.name, labels={"gateway": wanted.protocol}, window=1
            )
            await made.close()
            try:
                await self._keep(kept)
            except BaseException:
                await _at_host(lease.net, kept.name, Unsubscribe(kept.name))
                raise
        shown = self._shown(kept, secret=kept.secret or None)
        return answer(shown, 201, {"Location": f"/subscriptions/{kept.id}"})

    async def _update(self, call: Call) -> Response:
        wanted: SubscriptionRequest = call.body
        async with self._changing, call.lease() as lease:
            former = self._find(call)
            if wanted.protocol != former.wanted.protocol:
                raise ApiError(409, "protocol", "the protocol cannot be changed; delete the subscription, make another")
            if wanted.config is not None and wanted.config.name not in (None, former.id):
                raise ApiError(409, "name", f"the name cannot be changed; leave it out, or write {former.id!r}")
            kept = await self._checked(call.caller, lease, wanted, former.id, former)
            await self._quiet(former)
            try:
                await _at_host(lease.net, kept.name, Update(kept.name, kept.filter))
                await self._keep(kept)
            except BaseException:
                self._send(former)
                raise
        new_secret = kept.secret if kept.secret != former.secret else None
        return answer(self._shown(kept, secret=new_secret))

    async def _delete(self, call: Call) -> Response:
        async with self._changing, call.net() as net:
            kept = self._find(call)
            await self._quiet(kept)
            try:
                await _at_host(net, kept.name, Unsubscribe(kept.name))
            except ApiError:
                pass  # somebody ended it elsewhere: it is gone, as is wanted
            except BaseException:
                self._send(kept)
                raise
            await self._save({key: each for key, each in self._kept.items() if each is not kept})
        return Response(status_code=204)

    async def _checked(
        self, caller: Caller, lease: Lease, wanted: SubscriptionRequest, id_: str, former: _Kept | None
    ) -> _Kept:
        """A subscription as it will be kept; ApiError or FilterError where it cannot be."""
        text = filter_text(wanted.filters or (), wanted.types, wanted.source, await lease.schema())
        secret = ""
        if wanted.protocol == "HTTP":
            if wanted.sink is None:
                raise ApiError(422, "sink", "sink: is missing; say where events go, or take the protocol PULL")
            check_sink(wanted.sink, self._gateway.settings.private_sinks)
            given = None if wanted.protocolsettings is None else wanted.protocolsettings.secret
            secret = given or (former.secret if former is not None else make_secret())
            read_secret(secret)
        elif wanted.sink is not None or wanted.protocolsettings is not None:
            raise ApiError(422, "sink", "sink and protocolsettings: are for the protocol HTTP; leave them out")
        created = format_timestamp(datetime.now(UTC)) if former is None else former.created
        return _Kept(
            id=id_, owner=caller.owner, token=caller.token, secret=secret, filter=text, created=created, wanted=wanted
        )  # fmt: skip

    def _find(self, call: Call) -> _Kept:
        kept = self._kept.get((call.caller.owner, call.path["id"]))
        if kept is None:
            raise ApiError(404, "not_found", "there is no subscription of this id that was made here")
        return kept

    def _shown(self, kept: _Kept, secret: str | None = None) -> SubscriptionIs:
        webhook = self._webhooks.get((kept.owner, kept.id))
        status = (
            Status("ready")
            if webhook is None
            else Status(
                webhook.state,
                webhook.problem,
                webhook.delivered,
                webhook.failed,
                webhook.consent if self._gateway.settings.sink_consent != "off" else None,
                webhook.per_minute,
            )
        )
        wanted = kept.wanted
        return SubscriptionIs(
            id=kept.id,
            protocol=wanted.protocol,
            filter=kept.filter,
            created=kept.created,
            status=status,
            sink=wanted.sink,
            source=wanted.source,
            types=wanted.types,
            filters=wanted.filters,
            config=wanted.config,
            protocolsettings=None if secret is None else ProtocolSettings(secret),
        )

    # -- keeping -------------------------------------------------------------------------------------------------------

    async def _keep(self, kept: _Kept) -> None:
        await self._save({**self._kept, (kept.owner, kept.id): kept})
        self._send(kept)

    async def _save(self, all_: dict[tuple[str, str], _Kept]) -> None:
        """What is kept from now on: on disk first."""
        if self._path is not None:
            content = msgspec.json.encode(list(all_.values()))
            try:
                await asyncio.to_thread(replace, self._path, content, PRIVATE)
            except FileError as error:
                raise ApiError(503, "storage", f"it could not be kept: {error}") from None
        self._kept = all_

    def _send(self, kept: _Kept) -> None:
        """Begin to send what a webhook's subscription gets."""
        sink = kept.wanted.sink
        if kept.wanted.protocol != "HTTP" or sink is None:
            return
        caller = Caller(kept.token, None)
        self._webhooks[kept.owner, kept.id] = Webhook(
            self._gateway, self._sender, caller, kept.name, kept.filter, sink, read_secret(kept.secret), kept.parallel
        )

    async def _quiet(self, kept: _Kept) -> None:
        webhook = self._webhooks.pop((kept.owner, kept.id), None)
        if webhook is not None:
            await webhook.close()


async def _at_host(net: Network, name: str, what: Update | Unsubscribe) -> None:
    """Have something done by the broker that hosts a subscription."""
    located = await net.locate(name)
    if located.host is None:
        raise ApiError(404, "not_found", "the network has no such subscription any more; delete it here")
    link = await net.links.to(located.host)
    word = await link.asked(what)
    if isinstance(word, Refused):
        raise NetworkError(word.reason) if word.retry else RefusedError(word.reason)
