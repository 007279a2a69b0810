"""The transport: connections with bounded queues, TLS, sockets, and the CPU budget of unknown peers."""
