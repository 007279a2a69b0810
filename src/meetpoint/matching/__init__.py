"""Which subscriptions accept an event. `Scan` is the oracle; whatever is faster must agree with it."""

from meetpoint.matching.matcher import Matcher
from meetpoint.matching.scan import Scan

__all__ = ["Matcher", "Scan"]
