"""Tenancy: names, filters and events of a client as they are inside the network, and back.

Where clients show tokens, each has names of its own, and each tenant events of its own. A session translates the
client's words on the way in, and what it is told on the way out. Nothing in between knows of it: not the home, not the
six schemes, not the matcher.

| | the client says | inside |
| --- | --- | --- |
| name of a subscription | `prices` | `@acme/ann/prices` |
| owner | `ann` | `@acme/ann` |
| filter | `price > 9` | ``(price > 9) AND `$tenant` = 'acme'`` |
| event: id, publisher | `p/1`, `p` | `@acme/ann/p/1`, `@acme/ann/p` |
| event: attributes | `{price: 10}` | ``{price: 10, `$tenant`: "acme"}`` |

Names of tenants and clients have no slash (`security.tokens`), so that two clients share no name, whatever they say.
Without a tenant the condition is `` `$tenant` IS NULL ``, and an event has no such attribute. An event's id is its
client's own, so that nobody can publish under an id that somebody else is about to use and have that one suppressed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from meetpoint.errors import EventError
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.names import TENANT, join_name
from meetpoint.language.syntax.render import literal_text
from meetpoint.security.grants import RESERVED_PREFIX

__all__ = ["MARK", "ReservedError", "Scope", "event_outside"]

MARK: Final = "@"
"""The first character of a full name."""
NOBODY: Final = "/"
"""A tenant that never exists."""
_ATTRIBUTE: Final = join_name((TENANT,))
_DECODE: Final = msgspec.msgpack.Decoder().decode
_ENCODE: Final = msgspec.msgpack.Encoder().encode


class ReservedError(Exception):
    """A client used what brokers keep for themselves."""


class Scope:
    """The names, filters and events of one client."""

    def __init__(self, tenant: str, client: str) -> None:
        self.tenant = tenant
        self.client = client
        self.owner = f"{MARK}{tenant}/{client}"
        self.prefix = self.owner + "/"
        quoted = self.prefix.replace("\\", "\\\\")
        self._spellings = dict.fromkeys((self.prefix, quoted, quoted.replace("'", "\\'")))
        condition = f"{_ATTRIBUTE} = {literal_text(tenant)}" if tenant else f"{_ATTRIBUTE} IS NULL"
        self._filter_end = f") AND {condition}"

    def name_within(self, name: str) -> str:
        """Return a client's name as it is inside."""
        return self.prefix + name

    def names_within(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return a client's names as they are inside."""
        prefix = self.prefix
        return tuple([prefix + name for name in names])

    def names_outside(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return names as the client says them; others' are left as they are."""
        prefix = self.prefix
        return tuple([name.removeprefix(prefix) for name in names])

    def own(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the client's own among full names, as it says them."""
        prefix = self.prefix
        return tuple([name.removeprefix(prefix) for name in names if name.startswith(prefix)])

    def filter_within(self, text: str) -> str:
        """Return a valid filter, restricted to this tenant's events."""
        return f"({text}{self._filter_end}"

    def filter_outside(self, text: str) -> str:
        """Return a filter as the client said it."""
        end = self._filter_end
        return text[1 : -len(end)] if text.endswith(end) and text.startswith("(") else text

    def text_outside(self, text: str) -> str:
        """Return a sentence with the client's names as it says them, quoted by Python or not."""
        for spelling in self._spellings:
            text = text.replace(spelling, "")
        return text

    def event_within(self, content: bytes) -> bytes:
        """Return a client's event, in MessagePack, as it is inside; raise EventError where it is none."""
        event = _read(content)
        attributes = event[4]
        for name in attributes:
            if name.startswith(RESERVED_PREFIX):
                raise ReservedError(
                    f"event: attributes that begin with {RESERVED_PREFIX} are the network's own, as {name[:40]!r}; "
                    "rename it"
                )
        event[0] = self.prefix + event[0]
        event[1] = self.prefix + event[1]
        if self.tenant:
            attributes[TENANT] = self.tenant
        return _ENCODE(event)


def _read(content: bytes) -> list[Any]:
    """Return the parts of an event, values as on the wire; the strict reader reports what is odd about it."""
    try:
        event: Any = _DECODE(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        event = None
    is_plain = (
        type(event) is list
        and len(event) == 5
        and type(event[0]) is str
        and type(event[1]) is str
        and type(event[4]) is dict
        and all(type(name) is str for name in event[4])
    )
    if not is_plain or not event[0] or not event[1] or _ENCODE(event) != content:
        from_msgpack(content)  # raises, most often
        if not is_plain:
            raise EventError("event: cannot be read; send [id, publisher, sequence, time, attributes]")
    parts: list[Any] = event
    return parts


@lru_cache(maxsize=64)
def event_outside(content: bytes) -> tuple[str, bytes]:
    """Return an event's tenant, and the event as its publisher said it; one from before tokens stays."""
    event = _read(content)
    for place in (0, 1):
        if event[place].startswith(MARK) and event[place].count("/") >= 2:
            event[place] = event[place].split("/", 2)[2]
    tenant = event[4].pop(TENANT, "")
    return tenant if type(tenant) is str else NOBODY, _ENCODE(event)
