"""Sample messages, one of every kind, whose fields follow from their types alone.

Names of classes, fields and modules do not matter here, so that a rename leaves every byte as it was.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect as kinds

from meetpoint.api.client_messages import FROM_CLIENTS, TO_CLIENTS
from meetpoint.api.handshake import Hello, HelloRejected, NewIncarnation, Welcome
from meetpoint.catalog import make_link_codec

__all__ = ["encoded"]

_CONVERSATIONS = {
    "between brokers": make_link_codec().kinds,
    "handshake": (Hello, Welcome, HelloRejected, NewIncarnation),
    "from clients": FROM_CLIENTS,
    "to clients": TO_CLIENTS,
}
"""Tags are unique in each of them."""
_DEPTH_MAX = 6
_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode


def encoded() -> dict[str, list[str]]:
    """Return the bytes of a message of each kind, by conversation and tag, with each alternative of its fields."""
    found = {}
    for name, messages in _CONVERSATIONS.items():
        for message in messages:
            info = kinds.type_info(message)
            assert isinstance(info, kinds.StructType)
            made = dict.fromkeys(_ENCODE(_struct(info, turn, 0)).hex() for turn in range(_alternatives(info)))
            found[f"{name}: {info.tag}"] = list(made)
    return found


def _alternatives(info: kinds.StructType) -> int:
    """Return how many messages show every alternative of every field, of those that are directly in the message."""
    return max([len(each.type.types) for each in info.fields if isinstance(each.type, kinds.UnionType)], default=1)


def _struct(info: kinds.StructType, turn: int, depth: int) -> Any:
    values = {each.name: _value(each.type, turn, depth + 1) for each in info.fields}
    return info.cls(**values)


def _value(info: kinds.Type, turn: int, depth: int) -> Any:
    match info:
        case kinds.StructType():
            return _struct(info, turn, depth)
        case kinds.UnionType():
            return _value(info.types[(turn if depth <= _DEPTH_MAX else 0) % len(info.types)], turn, depth)
        case kinds.IntType():
            return max(7, info.ge or 0)
        case kinds.BytesType():
            return bytes(range(1, 1 + (info.min_length or min(20, info.max_length or 20))))
        case kinds.StrType():
            return "näme"[: info.max_length or 4]
        case kinds.VarTupleType():
            return tuple(_value(info.item_type, turn, depth + 1) for _ in range(2 if depth <= _DEPTH_MAX else 0))
        case kinds.TupleType():
            return tuple(_value(each, turn, depth + 1) for each in info.item_types)
        case kinds.ListType() | kinds.SetType() | kinds.FrozenSetType():
            made = [_value(info.item_type, turn, depth + 1)]
            return made if isinstance(info, kinds.ListType) else set(made)
        case kinds.DictType():
            return {_value(info.key_type, turn, depth + 1): _value(info.value_type, turn, depth + 1)}
        case kinds.NamedTupleType():
            return info.cls(*(_value(each.type, turn, depth + 1) for each in info.fields))
        case kinds.EnumType():
            return list(info.cls)[turn % len(info.cls)]
        case kinds.LiteralType():
            return info.values[turn % len(info.values)]
    return {
        kinds.BoolType: True,
        kinds.FloatType: 1.5,
        kinds.NoneType: None,
        kinds.AnyType: [1, "x"],
        kinds.RawType: msgspec.Raw(b"\x01"),
    }[type(info)]
