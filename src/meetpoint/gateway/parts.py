"""What a gateway consists of. Each part brings its routes to the one table."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from meetpoint.gateway.about import About
from meetpoint.gateway.config import GatewaySettings
from meetpoint.gateway.dry_runs import DryRuns
from meetpoint.gateway.events.publish import Publishing
from meetpoint.gateway.events.sockets import socket_routes
from meetpoint.gateway.events.streams import Streams
from meetpoint.gateway.gateway import Gateway, Part
from meetpoint.gateway.http.pages import page_routes
from meetpoint.gateway.observing import Manager, Observing, report_routes
from meetpoint.gateway.subscriptions.subscriptions import Subscriptions

__all__ = ["default_parts", "other_routes"]


def default_parts(settings: GatewaySettings, manager: Manager | None = None) -> Sequence[Part]:
    """All parts, in the order in which they begin; `manager` is whoever runs the brokers, if the same runs this."""
    return (About(), Publishing(), Streams(), Subscriptions(), DryRuns(), Observing(manager))


def other_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Routes that are not part of the interface for programs: pages, and what is no HTTP."""
    return (*socket_routes(gateway), *report_routes(gateway.settings.report), *page_routes())
