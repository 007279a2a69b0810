"""Filters: their normal form, their algebra, explanations and lint."""
