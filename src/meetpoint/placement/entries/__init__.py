"""Entries: the conjunctions of filters as they are stored under keys, and how they follow their subscriptions."""
