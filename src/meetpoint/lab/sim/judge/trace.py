"""A run read as the story of one event or one subscription: a line for whatever was said or done about it.

Whether a message is about it is seen from its bytes: an event's id and its key, a subscription's name, are somewhere in
them, however deep. So this needs no knowledge of any scheme.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Published
from meetpoint.catalog.purposes import IdMatcher
from meetpoint.lab.sim.clock import BEGINNING
from meetpoint.lab.sim.engine import Process
from meetpoint.node.runtime.effects import Answer, Ended, Notify, Persist, Stop, Trace
from meetpoint.node.runtime.inputs import ClientRequest, Started

__all__ = ["Storyteller", "shown"]

LINE_MAX = 200
"""The longest line, in characters."""

ITEMS_SHOWN = 4
ID_DIGITS = 8
ID_BYTES = 20
"""How much of a list and of an id is shown; longer bytes only by their number."""

_PACK = msgspec.msgpack.Encoder().encode


class Storyteller:
    """Writes a line for all that has to do with one event id or one subscription name."""

    def __init__(self, subject: str, write: Callable[[str], None]) -> None:
        self._subject = subject
        self._write = write
        self._signs = IdMatcher(subject.encode())
        self._requests: dict[int, str] = {}
        self.found = 0

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        """A message was sent."""
        if self._concerns(payload):
            self._tell(now, source.address, f"→ {to.address}  {shown(message)}")

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        """A message arrived."""
        if self._concerns(payload):
            self._tell(now, target.address, f"← {source.address}  {type(message).__name__}")

    def happened(self, now: int, process: Process, thing: object) -> None:
        """An effect, an input, or a word."""
        if isinstance(thing, str):
            self._tell(now, process.address, thing)
        elif isinstance(thing, Stop):
            self._tell(now, process.address, "has left")
        elif isinstance(thing, Started):
            self._tell(now, process.address, f"starts with {len(thing.records)} records")
        elif isinstance(thing, Persist):
            for record in thing.records:
                if self._concerns(record.name.encode()) or self._concerns(record.value or b""):
                    value = "deleted" if record.value is None else f"{len(record.value)} bytes"
                    self._tell(now, process.address, f"writes {record.name} of {shown(record.home)}, {value}")
            for home, name in thing.erased:
                if self._concerns(name.encode()):
                    self._tell(now, process.address, f"erases {name} of {shown(home)}")
        elif isinstance(thing, ClientRequest):
            if self._concerns(_PACK(thing.what)):
                self._requests[thing.request] = process.address
                self._tell(now, process.address, f"is asked ({thing.request}) {shown(thing.what)}")
        elif isinstance(thing, Ended):
            if thing.name == self._subject:
                self._tell(now, process.address, f"ends {thing.name}: {thing.reason}")
        elif isinstance(thing, Trace):
            if self._subject in thing.names or self._concerns(_PACK(thing.event)):
                names = ", ".join(thing.names) or "nobody"
                detail = f" ({thing.detail})" if thing.detail else ""
                self._tell(now, process.address, f"{thing.step} {shown(thing.event)}, {names}{detail}")
        elif isinstance(thing, Answer):
            self._answered(now, process, thing)
        elif isinstance(thing, Notify) and (self._concerns(thing.content) or self._subject in thing.names):
            self._signs.add_key(thing.event)
            mark = ", marked as redelivered" if thing.redelivered else ""
            self._tell(now, process.address, f"notifies {', '.join(thing.names)} of {shown(thing.event)}{mark}")

    def _answered(self, now: int, process: Process, answer: Answer) -> None:
        if self._requests.get(answer.request) == process.address:
            if isinstance(answer.outcome, Published):
                self._signs.add_key(answer.outcome.event)
            self._tell(now, process.address, f"answers ({answer.request}) {shown(answer.outcome)}")

    def _concerns(self, data: bytes) -> bool:
        found = self._signs.is_in(data)
        self.found += found
        return found

    def _tell(self, now: int, who: str, what: str) -> None:
        """A line. Who comes and goes belongs to every story."""
        line = f"{(now - BEGINNING) / SECOND_US:12.6f}  {who:>6}  {what}"
        self._write(line if len(line) <= LINE_MAX else line[: LINE_MAX - 1] + "…")


def shown(value: object) -> str:
    """A message or an effect as a person reads it: peers by address, events by key, ids by their first digits."""
    if isinstance(value, Peer):
        return value.address
    if isinstance(value, EventKey):
        return f"{shown(value.home)}/{value.stream}/{value.number}"
    if isinstance(value, bytes):
        return value.hex()[:ID_DIGITS] if len(value) <= ID_BYTES else f"{len(value)} bytes"
    if isinstance(value, tuple):
        more = ["…"] if len(value) > ITEMS_SHOWN else []
        return f"[{', '.join([*map(shown, value[:ITEMS_SHOWN]), *more])}]"
    if isinstance(value, msgspec.Struct):
        fields = (f"{name}={shown(getattr(value, name))}" for name in value.__struct_fields__)
        return f"{type(value).__name__}({', '.join(fields)})"
    return repr(value)
