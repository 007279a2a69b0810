"""Kernels, the compiled inner loops: arrays in, arrays out, no objects, and the GIL released.

Each has a plain twin in the tests. Matching a batch takes three steps. Every attribute of every event becomes its rank
on each of the attribute's lines: a row of 32-bit integers per event, -1 where it has no value (`ranks`). The patterns
that fit its texts are found (`patterns`). Ranks and patterns lead to buckets, whose entries are tested (`bucket_scan`).
Only these modules import numba.
"""
