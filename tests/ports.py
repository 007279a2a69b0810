"""Ports that no other test process takes: a block of a hundred, reserved for as long as this process lives."""

from __future__ import annotations

import socket

__all__ = ["reserve_ports"]

BLOCK = 100
BLOCKS = [port for begin in range(20_000, 32_000, 2_000) for port in range(begin, begin + 1_000, BLOCK)]
"""Below those that systems give to connections, and each without the port a thousand above it: `meetpoint up` has its
dashboard there."""
_HOST = "127.0.0.1"

_reservations: list[socket.socket] = []


def reserve_ports(first: int | None = None) -> int:
    """Return the first port of a block in which nobody listens: `first` where that is free, else any.

    A reservation is a listening socket at the last port of the block. Probing the ports is not enough: two processes
    could find the same ones free before either has bound them.
    """
    for port in ([first] if first else []) + BLOCKS:
        reservation = socket.socket()
        try:
            reservation.bind((_HOST, port + BLOCK - 1))
            reservation.listen()
            for other in range(port, port + BLOCK - 1):
                _probe(other)
        except OSError:
            reservation.close()
            continue
        _reservations.append(reservation)
        return port
    raise AssertionError("no block of ports is free")


def _probe(port: int) -> None:
    """Raise OSError where somebody listens at a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((_HOST, port))
