"""The dashboard's API: the state of the network, the path of an event, dry runs of filters, brokers of this machine."""

from meetpoint.gateway.dashboard.bodies import LocalBroker
from meetpoint.gateway.dashboard.routes import BrokerControl, DashboardRoutes

__all__ = ["BrokerControl", "DashboardRoutes", "LocalBroker"]
