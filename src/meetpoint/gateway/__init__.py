"""The gateway: a network over HTTP, for browsers, for curl and for programs that speak CloudEvents."""

from meetpoint.errors import optional_imports

with optional_imports():
    from meetpoint.gateway.app import GatewayServer, create_app, run_gateway, serve
    from meetpoint.gateway.config import GatewayLimits, GatewaySettings

__all__ = ["GatewayLimits", "GatewayServer", "GatewaySettings", "create_app", "run_gateway", "serve"]
