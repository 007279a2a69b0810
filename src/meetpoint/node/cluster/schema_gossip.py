"""The schema of the network: declared at any node, kept by all, and the same at all once they have heard of each other.

What spreads is a set of declarations, an attribute each, that only grows; so sets may meet in any order, and a part of
the network that was cut off has its say too. Two declarations of one attribute that differ can only come from two sides
of such a cut, as a node refuses what contradicts what it knows; then the same one counts everywhere.

Declarations travel with the comparison of directories (`directory.Sync`), when their digests differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from meetpoint.errors import SchemaError
from meetpoint.language.schema.schema import Schema
from meetpoint.node.runtime.records import LOCAL, Record
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["SchemaGossip"]

NOTE: Final = "schema"
BYTES_MAX: Final = 256 << 10
"""How long all declarations are together, at most: they travel in one message."""


class SchemaGossip:
    """What one node knows of it."""

    def __init__(self, services: Runtime) -> None:
        self._services = services
        self._texts: dict[str, Schema] = {}
        self._version = 0
        self.digest = b""
        """Of all declarations; empty where there are none."""
        self.schema: Schema | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """All declarations."""
        return tuple(sorted(self._texts))

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""
        for record in records:
            if record.name == NOTE and record.value is not None:
                self._version = record.version
                self._add(msgspec.msgpack.decode(record.value, type=tuple[str, ...]))

    def declare(self, text: str) -> None:
        """A client declares attributes; SchemaError where they contradict what is known."""
        given = Schema.from_yaml(text)
        if self.schema is not None:
            known = tuple(attribute for attribute in self.schema if attribute.name not in given)
            self.schema.evolve(Schema((*known, *given.attributes), given.name))
        texts = [Schema((attribute,)).to_yaml() for attribute in given]
        texts += [] if given.name is None else [Schema((), given.name).to_yaml()]
        size = sum(len(each.encode()) for each in {*self._texts, *texts})
        if size > BYTES_MAX:
            raise SchemaError(f"schema: with this it would have {size:,} bytes; declare at most {BYTES_MAX:,}")
        self._keep(texts)

    def learn(self, texts: Iterable[str]) -> None:
        """Another node told what it knows."""
        new = [text for text in texts if text not in self._texts]
        size = sum(len(each.encode()) for each in (*self._texts, *new))
        if size > BYTES_MAX:
            self._services.observe("schema_oversized")
        elif new:
            self._keep(new)

    def _keep(self, texts: Iterable[str]) -> None:
        if self._add(texts):
            self._version += 1
            record = Record(LOCAL, NOTE, self._version, msgspec.msgpack.encode(self.texts))
            self._services.persist((record,), (), None)

    def _add(self, texts: Iterable[str]) -> bool:
        before = len(self._texts)
        for text in texts:
            if text in self._texts:
                continue
            try:
                self._texts[text] = Schema.from_yaml(text)
            except SchemaError:
                self._services.observe("schema_malformed")  # of a peer that erred
        if len(self._texts) == before:
            return False
        self.schema = _union(self._texts[text] for text in self.texts)
        self.digest = hashlib.blake2b(msgspec.msgpack.encode(self.texts), digest_size=8).digest()
        return True


def _union(schemas: Iterable[Schema]) -> Schema:
    """One schema of many, given in an order that is the same everywhere: of those that clash the first counts."""
    union = Schema(())
    for each in schemas:
        for attribute in each:
            if attribute.name not in union:
                try:
                    union = Schema((*union.attributes, attribute), union.name)
                except SchemaError:
                    continue  # one is an object, and the other is not
        if union.name is None and each.name is not None:
            union = Schema(union.attributes, each.name)
    return union
