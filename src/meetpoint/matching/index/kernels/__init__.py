"""Compiled inner loops: arrays in, arrays out, no objects, and the GIL released. Each has a plain twin in the tests.

Matching a batch takes three steps: every attribute of every event becomes its rank on each of the attribute's lines, a
row of 32-bit integers per event, -1 where it has no value there (`ranks`); the patterns that fit its texts are found
(`patterns`); these lead to buckets, whose entries are tested (`scanning`). Only these modules import numba.
"""
