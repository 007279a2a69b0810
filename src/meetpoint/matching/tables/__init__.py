"""Filters on Arrow columns: columns prepared once, tested whole columns at a time, and checked against a schema."""
