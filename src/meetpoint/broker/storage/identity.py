"""Whose store it is: a broker that started with another's data would speak with two voices.

And by which scheme it was kept: what one scheme places at a key, another one does not find, or takes for its own.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from meetpoint.broker.storage.errors import StoreError
from meetpoint.broker.storage.layout import checksum

__all__ = ["Identity", "read_identity", "write_identity"]


class Identity(msgspec.Struct, frozen=True):
    """The name of the broker, from which its id follows, of its network, and of the scheme."""

    name: str
    network: str
    scheme: str = ""
    """Empty where it does not say, as that of a former version."""


def read_identity(connection: sqlite3.Connection, folder: Path | None) -> Identity | None:
    """What was written at the first start; None before it."""
    found: dict[str, str] = {}
    for name, value, crc in connection.execute("SELECT name, value, crc FROM meta"):
        if type(name) is not bytes or type(value) is not bytes or crc != checksum(b"", name, 0, value):
            raise StoreError(f"store {folder}: it is damaged where it says whose it is; restore a backup of it")
        found[name.decode()] = value.decode()
    if "name" not in found or "network" not in found:
        return None
    return Identity(found["name"], found["network"], found.get("scheme", ""))


def write_identity(
    connection: sqlite3.Connection, folder: Path | None, held: Identity | None, asked: Identity
) -> Identity:
    """Write what it does not say; refuse another one."""
    if held is not None and (held.name, held.network) != (asked.name, asked.network):
        raise StoreError(
            f"store {folder}: belongs to broker {held.name!r} of network {held.network!r}, "
            f"not to {asked.name!r} of {asked.network!r}; start that one with it, or use another folder"
        )
    if held is not None and held.scheme and asked.scheme and held.scheme != asked.scheme:
        raise StoreError(
            f"store {folder}: was kept by the scheme {held.scheme}, not {asked.scheme}; "
            "set scheme as it was, or use another folder"
        )
    said = msgspec.structs.asdict(held) if held is not None else {}
    new = {name: value for name, value in msgspec.structs.asdict(asked).items() if value and not said.get(name)}
    if new:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?, ?)",
            [(name, value, checksum(b"", name.encode(), 0, value.encode())) for name, value in new.items()],
        )
        connection.execute("COMMIT")
    return Identity(**{**said, **new})
