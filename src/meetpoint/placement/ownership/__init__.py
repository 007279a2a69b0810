"""Which home owns which range of keys, and how ranges change hands: claims, handoff, rebalancing."""
