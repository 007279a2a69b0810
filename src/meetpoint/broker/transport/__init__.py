"""Bytes in and out: the port, connections with bounded queues, TLS, and the CPU that suspects may use."""
