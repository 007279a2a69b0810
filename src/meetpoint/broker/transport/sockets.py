"""Sockets and file handles: a process may have so many open at one time, and every connection is one.

A broker without any left can neither reach other brokers nor write its journal. So the last ones are reserved: the very
last for files and for brokers that it dials, those before them for brokers that dial it. Clients get the rest. The
kernel always gives the lowest free handle; so the one that it would give now tells how many are taken by connections,
which never got a reserved one.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Final, NamedTuple

from meetpoint.broker.config import Address, BrokerError

__all__ = ["BACKLOG", "FileHandles", "handles", "is_out_of_handles", "listen_at", "raise_limit", "tune"]

if sys.platform != "win32":
    import resource


BACKLOG: Final = 1024
"""Connections that the kernel holds until they are accepted."""
RESERVED_MAX: Final = 128
"""Number of handles reserved from clients, or a quarter of all where there are few."""
RESERVED_FOR_FILES: Final = 8
"""The part of the reserved handles, as a divisor, that is for files and for what this broker dials."""


class FileHandles(NamedTuple):
    """The limit of file handles, and the next one."""

    limit: int
    lowest: int
    """The handle that is given next."""

    @property
    def reserved(self) -> int:
        """Number of handles that are reserved from clients."""
        return min(RESERVED_MAX, self.limit // 4)

    @property
    def for_clients(self) -> bool:
        """Whether one more client may have one."""
        return self.lowest < self.limit - self.reserved

    @property
    def for_anyone(self) -> bool:
        """Whether one more connection may have one."""
        return self.lowest < self.limit - max(1, self.reserved // RESERVED_FOR_FILES)


def handles() -> FileHandles:
    """Return the current handles; the limit may be changed while a process runs."""
    if sys.platform == "win32":
        return FileHandles(sys.maxsize, 0)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = sys.maxsize
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return FileHandles(limit, limit)
    os.close(descriptor)
    return FileHandles(limit, descriptor)


def is_out_of_handles(error: Exception) -> bool:
    """Return whether an error says that this process, or the whole machine, has no handle left."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def raise_limit() -> None:
    """Let this process have as many as it may; programs often start with 1,024, which are soon used up."""
    if sys.platform != "win32":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listen_at(address: Address, what: str) -> socket.socket:
    """Return a listening socket; BrokerError names the address where that is impossible."""
    try:
        family, kind, proto, _, target = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
    except (OSError, UnicodeError) as error:
        raise BrokerError(f"{what} {address}: {error}; give an address of this machine") from None
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(target)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        raise BrokerError(f"{what} {address}: {reason}; choose another one, or port 0 for any that is free") from None
    return sock


def tune(sock: socket.socket | None, stall_s: float) -> None:
    """Send small messages at once, and break a connection whose bytes are not confirmed for a while."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": int(stall_s * 1000)}
    for option, value in wanted.items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
