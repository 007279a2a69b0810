"""What belongs to whom: names, filters and events of a client as they are inside the network, and back.

Where clients show tokens, each has names of its own, and each tenant events of its own. A session translates what its
client says on the way in, and what it is told on the way out; between, nothing knows of it: not the home, not the six
schemes, not the matcher.

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
from meetpoint.security.permissions import RESERVED_PREFIX

__all__ = ["MARK", "ReservedError", "Scope", "event_outside"]

MARK: Final = "@"
"""What a full name begins with."""
NOBODY: Final = "/"
"""A tenant that there is never."""
_ATTRIBUTE: Final = join_name((TENANT,))
_DECODE: Final = msgspec.msgpack.Decoder().decode
_ENCODE: Final = msgspec.msgpack.Encoder().encode


class ReservedError(Exception):
    """A client used what brokers keep for themselves."""


class Scope:
    """What is one client's own."""

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
        """A name of the client's, inside."""
        return self.prefix + name

    def names_within(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The same of several."""
        prefix = self.prefix
        return tuple([prefix + name for name in names])

    def names_outside(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names as the client says them; others' are left as they are."""
        prefix = self.prefix
        return tuple([name.removeprefix(prefix) for name in names])

    def own(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Of full names, the client's own, as it says them."""
        prefix = self.prefix
        return tuple([name.removeprefix(prefix) for name in names if name.startswith(prefix)])

    def filter_within(self, text: str) -> str:
        """A filter that was read before, for this tenant's events alone."""
        return f"({text}{self._filter_end}"

    def filter_outside(self, text: str) -> str:
        """What the client had said."""
        end = self._filter_end
        return text[1 : -len(end)] if text.endswith(end) and text.startswith("(") else text

    def text_outside(self, text: str) -> str:
        """A sentence about names of the client, which may stand there as they are or as Python quotes them."""
        for spelling in self._spellings:
            text = text.replace(spelling, "")
        return text

    def event_within(self, content: bytes) -> bytes:
        """An event as MessagePack, as this client's; EventError where it is none."""
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
    """The parts of an event, values as they are on the wire. What is odd about it is for the strict reader to say."""
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
    """Whose tenant's an event is, and the event as its publisher said it; one from before there were tokens stays."""
    event = _read(content)
    for place in (0, 1):
        if event[place].startswith(MARK) and event[place].count("/") >= 2:
            event[place] = event[place].split("/", 2)[2]
    tenant = event[4].pop(TENANT, "")
    return tenant if type(tenant) is str else NOBODY, _ENCODE(event)
