"""The base of all messages, between nodes and between clients and brokers.

A message is a frozen struct, on the wire an array that begins with its tag, so that fields may be added at the end with
defaults: an older reader skips them, a newer one fills them in. Ids are bytes. A `Query` carries the number its sender
gave it, and the `Reply` carries it back; `Runtime.ask` keeps the two together.
"""

from __future__ import annotations

import msgspec

__all__ = ["Message", "Query", "Reply"]


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Any message. Each kind has a `tag` of its own, short, and unique among all parts of a network."""


class Query(Message, frozen=True, array_like=True, gc=False):
    """A message that wants a reply; `request` is its sender's number for it."""

    request: int


class Reply(Message, frozen=True, array_like=True, gc=False):
    """The answer to a query, with the query's number."""

    request: int
