"""Whose store it is: a broker that started with another's data would speak with two voices."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from meetpoint.store.errors import StoreError
from meetpoint.store.layout import checksum

__all__ = ["Identity", "read_identity", "write_identity"]


class Identity(msgspec.Struct, frozen=True):
    """The name of the broker, from which its id follows, and of its network."""

    name: str
    network: str


def read_identity(connection: sqlite3.Connection, folder: Path | None) -> Identity | None:
    """What was written at the first start; None before it."""
    found: dict[str, str] = {}
    for name, value, crc in connection.execute("SELECT name, value, crc FROM meta"):
        if type(name) is not bytes or type(value) is not bytes or crc != checksum(b"", name, 0, value):
            raise StoreError(f"store {folder}: it is damaged where it says whose it is; restore a backup of it")
        found[name.decode()] = value.decode()
    return Identity(found["name"], found["network"]) if "name" in found and "network" in found else None


def write_identity(
    connection: sqlite3.Connection, folder: Path | None, held: Identity | None, asked: Identity
) -> Identity:
    """Write it where there is none; refuse another one."""
    if held is None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?, ?)",
            [
                (name, value, checksum(b"", name.encode(), 0, value.encode()))
                for name, value in (("name", asked.name), ("network", asked.network))
            ],
        )
        connection.execute("COMMIT")
    elif held != asked:
        raise StoreError(
            f"store {folder}: belongs to broker {held.name!r} of network {held.network!r}, "
            f"not to {asked.name!r} of {asked.network!r}; start that one with it, or use another folder"
        )
    return asked
