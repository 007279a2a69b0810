"""Workloads made from a seed, in whole columns: events, subscriptions, and their long form."""
