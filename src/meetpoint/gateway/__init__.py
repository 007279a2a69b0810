"""The gateway: a network over HTTP, for browsers, for curl and for programs that speak CloudEvents."""

from meetpoint.gateway.app import create_app
from meetpoint.gateway.config import GatewayLimits, GatewaySettings
from meetpoint.gateway.server import GatewayServer, run_gateway, serve

__all__ = ["GatewayLimits", "GatewayServer", "GatewaySettings", "create_app", "run_gateway", "serve"]
