"""Filters: their normal form, what they mean to each other, explanations and lint."""
