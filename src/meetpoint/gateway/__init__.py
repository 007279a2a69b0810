"""The gateway: a network's HTTP, for browsers, for curl and for whoever speaks CloudEvents."""

from meetpoint.gateway.app import create_app
from meetpoint.gateway.config import GatewayLimits, GatewaySettings
from meetpoint.gateway.gateway_server import Served, serve, serving

__all__ = ["GatewayLimits", "GatewaySettings", "Served", "create_app", "serve", "serving"]
