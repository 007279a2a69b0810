"""Workloads made from a seed, in whole columns: what events hold, what subscriptions ask, and their long form."""
