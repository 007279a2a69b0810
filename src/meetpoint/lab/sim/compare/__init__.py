"""Comparison of schemes: the same filters and events on each, and what each costs."""
