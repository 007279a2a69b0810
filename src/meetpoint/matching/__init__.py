"""Matchers: which subscriptions accept an event. `Scan` is the oracle; every faster matcher must agree with it."""

from meetpoint.matching.matcher import Matcher
from meetpoint.matching.scan import Scan

__all__ = ["Matcher", "Scan"]
