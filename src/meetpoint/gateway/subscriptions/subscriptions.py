"""/subscriptions: durable subscriptions by REST, in the shape of the CloudEvents Subscriptions API.

`protocol` is `HTTP` (each event is sent to `sink`, see `webhooks`) or `PULL` (events are read by GET
/events?durable=ID, by WebSocket or by any client). A subscription belongs to the client whose token made it. It is
stored in the gateway's data folder, with that token and the secret, readable by its owner alone.
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
from meetpoint.gateway.gateway import Gateway, RouteGroup
from meetpoint.gateway.http.errors import ApiError, ErrorBody
from meetpoint.gateway.http.routes import JSON, Body, Call, ResponseSpec, Route, json_response
from meetpoint.gateway.subscriptions.dialects import FilterDialect, filter_text
from meetpoint.gateway.subscriptions.sinks import URL_MAX, check_sink
from meetpoint.gateway.subscriptions.webhooks import PARALLEL_MAX, Webhook, WebhookSender, make_secret, read_secret
from meetpoint.language.timestamps import format_timestamp
from meetpoint.security.files import PRIVATE, FileError, make_folder, read, replace

__all__ = ["SubscriptionBody", "SubscriptionRequest", "SubscriptionRoutes"]

FILE: Final = "subscriptions.json"
_WEBHOOK: Final = "webhook:"
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)

Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Id = Annotated[str, Meta(pattern=f"^{_ID.pattern}$")]


class SubscriptionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options for the gateway."""

    name: Annotated[Id, Meta(description="The id of the subscription; without one it gets one")] | None = None
    parallel: Annotated[int, Meta(ge=1, le=PARALLEL_MAX, description="Requests to the sink at a time")] = 1


class ProtocolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options for requests to the sink."""

    secret: (
        Annotated[str, Meta(description="What requests are signed with, whsec_ and base64; without one it gets one")]
        | None
    ) = None
    method: Literal["POST"] = "POST"


class SubscriptionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request for a subscription."""

    protocol: Literal["HTTP", "PULL"]
    sink: Annotated[str, Meta(min_length=1, max_length=URL_MAX, description="Where events go: HTTP only")] | None = None
    source: Annotated[Text, Meta(description="Only CloudEvents of this source")] | None = None
    types: Annotated[list[Text], Meta(max_length=64, description="Only CloudEvents of these types")] | None = None
    filters: Annotated[list[FilterDialect], Meta(max_length=64, description="All of these accept")] | None = None
    config: SubscriptionConfig | None = None
    protocolsettings: ProtocolSettings | None = None


class SubscriptionStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a subscription."""

    state: str
    """`ready` (PULL), `starting`, `delivering`, `failing` (it goes on trying), `stopped` (it does not)."""
    problem: str | None = None
    delivered: int = 0
    failed: int = 0
    consent: Literal["granted", "unknown", "refused"] | None = None
    """Whether the sink agreed to get events; `unknown`: it does not know the question. None where it was not asked."""
    per_minute: int | None = None
    """The most requests a minute to the sink; None: without limit."""


class SubscriptionBody(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A subscription as responses show it."""

    id: str
    protocol: Literal["HTTP", "PULL"]
    filter: str
    """All conditions together, in Meetpoint's language."""
    created: str
    status: SubscriptionStatus
    sink: str | None = None
    source: str | None = None
    types: list[str] | None = None
    filters: list[FilterDialect] | None = None
    config: SubscriptionConfig | None = None
    protocolsettings: ProtocolSettings | None = None
    """The secret is shown once, in the response to the request that made it."""


class _StoredSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as the gateway's file has it."""

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


class SubscriptionRoutes(RouteGroup):
    """The routes under /subscriptions, and the webhooks of subscriptions with a sink."""

    def __init__(self) -> None:
        self._stored: dict[tuple[str, str], _StoredSubscription] = {}
        self._webhooks: dict[tuple[str, str], Webhook] = {}
        self._change_lock = asyncio.Lock()
        self._lock: Lock | None = None

    @property
    def routes(self) -> Sequence[Route]:
        missing = ResponseSpec("There is none of this id", ErrorBody)
        exists = ResponseSpec("There is one of this name", ErrorBody)
        full = ResponseSpec("Too many subscriptions", ErrorBody)
        return (
            Route(
                method="GET",
                path="/subscriptions",
                handler=self._list,
                summary="All subscriptions of this client that were made here",
                responses={200: ResponseSpec("By id", list[SubscriptionBody])},
            ),
            Route(
                method="POST",
                path="/subscriptions",
                handler=self._create,
                summary="Make a subscription",
                body=Body({JSON: SubscriptionRequest}),
                responses={
                    201: ResponseSpec("It is made; what is published from now on comes", SubscriptionBody),
                    409: exists,
                    429: full,
                },
            ),
            Route(
                method="GET",
                path="/subscriptions/{id}",
                handler=self._get,
                summary="One subscription",
                responses={200: ResponseSpec("As it is", SubscriptionBody), 404: missing},
            ),
            Route(
                method="PUT",
                path="/subscriptions/{id}",
                handler=self._update,
                summary="Change a subscription: all of it but its id and its protocol",
                body=Body({JSON: SubscriptionRequest}),
                responses={
                    200: ResponseSpec("It is changed", SubscriptionBody),
                    404: missing,
                    409: ResponseSpec("That cannot be changed", ErrorBody),
                },
            ),
            Route(
                method="DELETE",
                path="/subscriptions/{id}",
                handler=self._delete,
                summary="End a subscription, with all that waits for it",
                responses={204: ResponseSpec("It is gone"), 404: missing},
            ),
        )

    async def start(self, gateway: Gateway) -> None:
        self._gateway = gateway
        gateway.counters.gauges.append(lambda: {"subscriptions": float(len(self._stored))})
        folder = gateway.settings.data
        self._path = None if folder is None else Path(folder) / FILE
        if self._path is not None:
            make_folder(self._path.parent)
            self._lock = Lock(self._path.parent)  # two gateways would send to each webhook twice
            if self._path.exists():
                try:
                    stored = msgspec.json.decode(
                        read(self._path, "the gateway's subscriptions"), type=list[_StoredSubscription]
                    )
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    self._lock.release()
                    raise FileError(f"{self._path}: is damaged: {error}; put it aside, and make them again") from None
                self._stored = {(each.owner, each.id): each for each in stored}
        self._sender = WebhookSender(gateway.settings, gateway.counters)
        for each in self._stored.values():
            self._start_webhook(each)

    async def stop(self) -> None:
        await asyncio.gather(*(webhook.close() for webhook in self._webhooks.values()))
        self._webhooks.clear()
        await self._sender.close()
        if self._lock is not None:
            self._lock.release()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _list(self, call: Call) -> Response:
        mine = sorted(
            (each for each in self._stored.values() if each.owner == call.caller.owner), key=lambda one: one.id
        )
        return json_response([self._body_of(each) for each in mine])

    async def _get(self, call: Call) -> Response:
        return json_response(self._body_of(self._find(call)))

    async def _create(self, call: Call) -> Response:
        wanted: SubscriptionRequest = call.body
        owner = call.caller.owner
        async with self._change_lock, call.lease() as lease:
            most = call.gateway.settings.limits.subscriptions_per_client
            if sum(each.owner == owner for each in self._stored.values()) >= most:
                raise ApiError(429, "subscriptions", f"there are {most:,} subscriptions; end some")
            name = None if wanted.config is None else wanted.config.name
            stored = await self._validated(call.caller, lease, wanted, name or f"sub-{secrets.token_hex(6)}", None)
            located = await lease.net.locate(stored.name)
            if (owner, stored.id) in self._stored or located.host is not None:
                raise ApiError(409, "exists", f"there is a subscription {stored.id!r}; take another name")
            made = await lease.net.subscribe(
                stored.filter, durable=stored.name, labels={"gateway": wanted.protocol}, window=1
            )
            await made.close()  # the webhook or the reader attaches itself; until then events wait at the broker
            try:
                await self._store(stored)
            except BaseException:
                await _ask_host(lease.net, stored.name, Unsubscribe(stored.name))
                raise
        shown = self._body_of(stored, secret=stored.secret or None)
        return json_response(shown, 201, {"Location": f"/subscriptions/{stored.id}"})

    async def _update(self, call: Call) -> Response:
        wanted: SubscriptionRequest = call.body
        async with self._change_lock, call.lease() as lease:
            former = self._find(call)
            if wanted.protocol != former.wanted.protocol:
                raise ApiError(409, "protocol", "the protocol cannot be changed; delete the subscription, make another")
            if wanted.config is not None and wanted.config.name not in (None, former.id):
                raise ApiError(409, "name", f"the name cannot be changed; leave it out, or write {former.id!r}")
            stored = await self._validated(call.caller, lease, wanted, former.id, former)
            await self._stop_webhook(former)
            try:
                await _ask_host(lease.net, stored.name, Update(stored.name, stored.filter))
                await self._store(stored)
            except BaseException:
                self._start_webhook(former)
                raise
        new_secret = stored.secret if stored.secret != former.secret else None
        return json_response(self._body_of(stored, secret=new_secret))

    async def _delete(self, call: Call) -> Response:
        async with self._change_lock, call.net() as net:
            stored = self._find(call)
            await self._stop_webhook(stored)
            try:
                await _ask_host(net, stored.name, Unsubscribe(stored.name))
            except ApiError:
                pass  # somebody ended it elsewhere: it is gone, as is wanted
            except BaseException:
                self._start_webhook(stored)
                raise
            await self._save({key: each for key, each in self._stored.items() if each is not stored})
        return Response(status_code=204)

    async def _validated(
        self, caller: Caller, lease: Lease, wanted: SubscriptionRequest, id_: str, former: _StoredSubscription | None
    ) -> _StoredSubscription:
        """Return a subscription ready to be stored; raise ApiError or FilterError where it is refused."""
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
        return _StoredSubscription(
            id=id_, owner=caller.owner, token=caller.token, secret=secret, filter=text, created=created, wanted=wanted
        )  # fmt: skip

    def _find(self, call: Call) -> _StoredSubscription:
        stored = self._stored.get((call.caller.owner, call.path["id"]))
        if stored is None:
            raise ApiError(404, "not_found", "there is no subscription of this id that was made here")
        return stored

    def _body_of(self, stored: _StoredSubscription, secret: str | None = None) -> SubscriptionBody:
        webhook = self._webhooks.get((stored.owner, stored.id))
        status = (
            SubscriptionStatus("ready")
            if webhook is None
            else SubscriptionStatus(
                webhook.state,
                webhook.problem,
                webhook.delivered,
                webhook.failed,
                webhook.consent if self._gateway.settings.sink_consent != "off" else None,
                webhook.per_minute,
            )
        )
        wanted = stored.wanted
        return SubscriptionBody(
            id=stored.id,
            protocol=wanted.protocol,
            filter=stored.filter,
            created=stored.created,
            status=status,
            sink=wanted.sink,
            source=wanted.source,
            types=wanted.types,
            filters=wanted.filters,
            config=wanted.config,
            protocolsettings=None if secret is None else ProtocolSettings(secret),
        )

    # -- keeping -------------------------------------------------------------------------------------------------------

    async def _store(self, stored: _StoredSubscription) -> None:
        await self._save({**self._stored, (stored.owner, stored.id): stored})
        self._start_webhook(stored)

    async def _save(self, all_: dict[tuple[str, str], _StoredSubscription]) -> None:
        """Replace all stored subscriptions: on disk first, then in memory."""
        if self._path is not None:
            content = msgspec.json.encode(list(all_.values()))
            try:
                await asyncio.to_thread(replace, self._path, content, PRIVATE)
            except FileError as error:
                raise ApiError(503, "storage", f"it could not be kept: {error}") from None
        self._stored = all_

    def _start_webhook(self, stored: _StoredSubscription) -> None:
        """Start the webhook of a subscription that has a sink."""
        sink = stored.wanted.sink
        if stored.wanted.protocol != "HTTP" or sink is None:
            return
        caller = Caller(stored.token, None)
        self._webhooks[stored.owner, stored.id] = Webhook(
            self._gateway,
            self._sender,
            caller,
            stored.name,
            stored.filter,
            sink,
            read_secret(stored.secret),
            stored.parallel,
        )

    async def _stop_webhook(self, stored: _StoredSubscription) -> None:
        webhook = self._webhooks.pop((stored.owner, stored.id), None)
        if webhook is not None:
            await webhook.close()


async def _ask_host(net: Network, name: str, what: Update | Unsubscribe) -> None:
    """Send a request to the broker that hosts a subscription."""
    located = await net.locate(name)
    if located.host is None:
        raise ApiError(404, "not_found", "the network has no such subscription any more; delete it here")
    connection = await net.connections.to(located.host)
    reply = await connection.request(what)
    if isinstance(reply, Refused):
        raise NetworkError(reply.reason) if reply.retry else RefusedError(reply.reason)
