"""Filters on Arrow columns: columns prepared once, whole columns tested at a time, and rows checked against a schema."""
