"""What goes to standard streams: JSON that every reader takes, and consoles that leave a closed pipe to `app`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from rich.console import Console

__all__ = ["QuietConsole", "json_text"]


class QuietConsole(Console):
    """A console for which a reader that goes away is a BrokenPipeError, as elsewhere, not an exit with 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def json_text(value: Any) -> str:
    """One line of JSON; NaN and the infinities, which JSON does not have, are strings."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(below) for below in value]
    return value
