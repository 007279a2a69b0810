"""Meetpoint's speed beside its peers in one run: workloads, peers, and measurements."""
