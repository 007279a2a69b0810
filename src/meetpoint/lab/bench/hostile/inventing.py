"""Messages that nobody would say: of the right types, with any values that a reader of these types takes."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

__all__ = ["Inventor"]

NUMBERS: Final = (0, 1, 2, 7, -1, 255, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
TEXTS: Final = (
    "",
    "a",
    "s",
    "x" * 300,
    "\x00",
    "127.0.0.1:1",
    "nowhere:x",
    "price > 3",
    "x = 'ünïcödé'",
    "1/2/3",
    "ff/0/1",
)


class Inventor:
    """Draws structs; some bytes and texts are those that the victim knows."""

    def __init__(self, seed: int, known: tuple[bytes, ...] = ()) -> None:
        self._random = random.Random(seed)
        self._known = known

    def message(self, kind: type[msgspec.Struct]) -> bytes:
        """The bytes of a message of a kind."""
        return msgspec.msgpack.encode(self._value(_fields(kind), 0))

    def _value(self, kind: inspect.Type, depth: int) -> Any:
        drawn = self._random
        if isinstance(kind, inspect.UnionType):
            return self._value(drawn.choice(kind.types), depth)
        if isinstance(kind, inspect.StructType):
            fields = [self._value(field.type, depth + 1) for field in kind.fields]
            return fields if kind.tag is None else [kind.tag, *fields]
        if isinstance(kind, inspect.NamedTupleType):
            return [self._value(field.type, depth + 1) for field in kind.fields]
        if isinstance(kind, inspect.IntType):
            number = drawn.choice(NUMBERS) if drawn.random() < 0.5 else drawn.randrange(5)
            low, high = -(2**63) if kind.ge is None else kind.ge, 2**64 - 1 if kind.le is None else kind.le
            return min(max(number, low), high)
        if isinstance(kind, inspect.BytesType):
            return drawn.choice(
                (*self._known, b"", b"\x00", drawn.randbytes(8), drawn.randbytes(20), b"\x93\x01\x02\x03")
            )
        if isinstance(kind, inspect.StrType):
            return drawn.choice(TEXTS)
        if isinstance(kind, inspect.BoolType):
            return drawn.random() < 0.5
        if isinstance(kind, inspect.FloatType):
            return drawn.choice((0.0, 1.5, -1e300, float("inf"), float("nan")))
        if isinstance(kind, inspect.NoneType):
            return None
        if isinstance(kind, inspect.EnumType):
            return drawn.choice([each.value for each in kind.cls])
        if isinstance(kind, inspect.LiteralType):
            return drawn.choice(kind.values)
        if isinstance(kind, inspect.TupleType):
            return [self._value(item, depth + 1) for item in kind.item_types]
        if isinstance(kind, inspect.CollectionType | inspect.VarTupleType | inspect.ListType):
            return [self._value(kind.item_type, depth + 1) for _ in range(drawn.randrange(3 if depth < 4 else 1))]
        if isinstance(kind, inspect.DictType):
            many = range(drawn.randrange(3))
            return {self._value(kind.key_type, depth + 1): self._value(kind.value_type, depth + 1) for _ in many}
        if isinstance(kind, inspect.AnyType):
            return drawn.choice((None, 1, "a", b"b"))
        raise AssertionError(f"nothing is known of {kind}")


@lru_cache(maxsize=1024)
def _fields(kind: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(kind)
