"""Seeing and managing the network: what it looks like, how it is, how an event goes, what a filter would find."""

from meetpoint.gateway.observing.manager import Manager
from meetpoint.gateway.observing.part import Observing
from meetpoint.gateway.observing.report_pages import report_routes
from meetpoint.gateway.observing.shapes import NodeIs

__all__ = ["Manager", "NodeIs", "Observing", "report_routes"]
