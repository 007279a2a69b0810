"""Wording of texts for people."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, thing: str) -> str:
    """Return a count with its noun: `1 row`, `2,000 rows`, `3 batches`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}{'es' if thing.endswith('ch') else 's'}"
