"""A broker: a node with sockets, a disk and clients."""

from meetpoint.broker.broker import Broker
from meetpoint.broker.config import BrokerConfig, BrokerError, ConfigError, Limits, Logging, make_config, read_config
from meetpoint.broker.main import new_event_loop, run, run_broker, serve

__all__ = [
    "Broker", "BrokerConfig", "BrokerError", "ConfigError", "Limits", "Logging", "make_config", "new_event_loop",
    "read_config", "run", "run_broker", "serve",
]  # fmt: skip
