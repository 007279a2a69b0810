"""The base of all messages, between nodes and between clients and brokers.

A message is a frozen struct, on the wire an array that begins with its tag. Fields may be added at the end with
defaults: an older reader skips them, a newer one fills them in. Ids are bytes. A `Query` carries its sender's number,
and the `Reply` carries that back; `Runtime.ask` pairs the two.
"""

from __future__ import annotations

import msgspec

__all__ = ["Message", "Query", "Reply"]


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of messages. Each kind has a short `tag`, unique among all parts of a network."""


class Query(Message, frozen=True, array_like=True, gc=False):
    """A message that wants a reply; `request` is its sender's number for it."""

    request: int


class Reply(Message, frozen=True, array_like=True, gc=False):
    """The reply to a query, with the query's number."""

    request: int
