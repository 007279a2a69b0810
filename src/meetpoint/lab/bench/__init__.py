"""How fast Meetpoint is, measured beside its peers in one run: workloads, peers, and the measuring."""
