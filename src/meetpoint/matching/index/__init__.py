"""The index: a log-structured merge tree (LSM) of compiled subscriptions.

`lsm` has the tree with its memtable, flush and compaction; `snapshot` the state that a match sees, with tombstones;
`segment` one compiled, immutable part. `filter_reader`, `bulk_reader`, `rank_form` and `layout` compile a segment,
`encoder`, `small_batch` and `kernels` search it, `storage` maps it from a file.
"""

from meetpoint.matching.index.events import JsonEvents
from meetpoint.matching.index.lsm import Index
from meetpoint.matching.index.snapshot import Pairs

__all__ = ["Index", "JsonEvents", "Pairs"]
