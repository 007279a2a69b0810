"""`python -m tests.warm`: compile the kernels that most tests need, once for all processes to come.

Where they cannot be kept, each process compiles its own.
"""

from __future__ import annotations

from meetpoint.language import parse_filter
from meetpoint.matching.index import Index, JsonEvents
from meetpoint.matching.index.warmup import warm_up

FILTERS = 300
"""More than are matched without an index."""

if __name__ == "__main__":
    warm_up()
    index = Index.from_filters((n, parse_filter(f"a >= {n} OR s LIKE '%b{n}%' OR o.x = {n}")) for n in range(FILTERS))
    index.table(JsonEvents(b'{"a": 1, "s": "x"}\n{"o": {"x": 7}}\n{"a": }\n', rejects=[]))
