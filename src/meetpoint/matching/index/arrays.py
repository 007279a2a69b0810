"""NumPy's arrays as Arrow's: `pyarrow.array` imports pandas first, which a thread cannot do once the process ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["arrow_bits"]


def arrow_bits(bits: Any) -> pa.BooleanArray:
    """Booleans, none of them missing."""
    packed = np.packbits(bits, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(bits), [None, pa.py_buffer(packed)])
