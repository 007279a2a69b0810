"""The sans-IO kernel: what a node is, apart from any network, clock or disk."""
