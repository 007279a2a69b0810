"""What events are like, from a file that `meetpoint pipeline measure --feedback` writes: loaded while a broker runs,
whenever the file is another one.

It changes no answer, only how much work an answer takes: so a file that is missing or damaged is told, and no more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from meetpoint.broker.observe.logs import Log
from meetpoint.broker.observe.metrics import Counts
from meetpoint.errors import MeetpointError
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.runtime.inputs import Input, Measured

__all__ = ["Tuner"]


class Tuner:
    """Looks at one file."""

    def __init__(self, path: str, counts: Counts, log: Log, hand: Callable[[Input], None]) -> None:
        self._path = path
        self._counts = counts
        self._log = log
        self._hand = hand
        self._seen: tuple[int, int, int] | None = None
        self._problem = ""

    def look(self) -> None:
        """Load the file, if it is another one than before."""
        try:
            found = os.stat(self._path)
        except OSError as error:
            self._say(f"{self._path}: {(error.strerror or str(error)).lower()}")
            return
        seen = found.st_mtime_ns, found.st_size, found.st_ino
        if seen == self._seen:
            return
        self._seen = seen
        try:
            feedback = Feedback.load(self._path)
        except MeetpointError as error:
            self._say(str(error))
            return
        self._problem = ""
        self._counts.totals["feedback_loads"] += 1
        self._log.say(logging.INFO, "feedback_loaded", file=self._path, events=feedback.events)
        self._hand(Measured(feedback))

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._log.say(logging.WARNING, "feedback_unreadable", problem=problem)
