"""How a broker finds its network: it asks who is at the addresses that it was told to join."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from meetpoint.api.handshake import Hello, Welcome
from meetpoint.api.ids import NodeId, Peer
from meetpoint.broker.clients.refusals import Refusals
from meetpoint.broker.config import BrokerConfig, parse_address
from meetpoint.broker.errors import BrokerError
from meetpoint.broker.observe.logs import Log
from meetpoint.broker.peers.dialer import Refusal, dial
from meetpoint.broker.transport.connection import Connection, FlushScheduler
from meetpoint.broker.transport.tls import Guard

__all__ = ["Bootstrap"]

GRACE_S: Final = 0.3
"""For so long others are waited for, when one is known."""


class Bootstrap:
    """Asks those whom a broker shall join."""

    def __init__(
        self,
        config: BrokerConfig,
        guard: Guard,
        scheduler: FlushScheduler,
        refusals: Refusals,
        log: Log,
        me: Peer,
        knows_others: bool,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._guard = guard
        self._scheduler = scheduler
        self._refusals = refusals
        self._log = log
        self._me = me
        self._knows_others = knows_others
        """Whether the disk tells of other brokers, so that nobody need be named."""
        self._say = say
        """Told what it waits for, in words."""

    async def find(self) -> tuple[Peer, ...] | None:
        """Whom the node can ask: who answers at `join`. None: nobody does, and somebody must."""
        own = self._me.address
        join = [address for address in self._config.join if str(parse_address(address, "join")) != own]
        if self._config.join and not join:
            raise BrokerError(
                f"join: it names this broker only ({own}); leave it out to begin a network, or name another broker"
            )
        if not join:
            return ()
        self._say(f"it looks for a broker at {', '.join(join)}")
        contacts = await self._ask_all(join)
        return contacts if contacts or self._knows_others else None

    async def _ask_all(self, join: list[str]) -> tuple[Peer, ...]:
        """Who answers: those that do so soon, or at least one, where anyone does and nobody else is known."""
        pending = {asyncio.ensure_future(self._ask(address)) for address in join}
        contacts: dict[NodeId, Peer] = {}
        wait_s: float | None = GRACE_S
        try:
            while pending:
                done, pending = await asyncio.wait(pending, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                contacts.update({peer.id: peer for task in done if (peer := task.result()) is not None})
                if not done and (contacts or self._knows_others):
                    break
                wait_s = GRACE_S if contacts or self._knows_others else None
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        return tuple(contacts.values())

    async def _ask(self, address: str) -> Peer | None:
        """The broker at an address; None where nobody answers now, or nobody who is believed."""
        found: list[Peer] = []

        def welcomed(connection: Connection, message: Welcome) -> None:
            found.append(message.broker)

        hello = Hello(self._config.wire_versions, self._config.network, self._me, way=self._config.way)
        try:
            connection = await dial(self._config, self._guard, self._scheduler, address, hello, welcomed)
            connection.close("it was only a question")
        except Refusal as refusal:
            if refusal.kind:  # it is not believed: whoever sits at an address cannot keep this broker from starting
                self._refusals.refuse(refusal.kind, address=address, reason=refusal.reason)
                self._say(f"join {address}: {refusal.reason}")
            elif not refusal.retry:
                raise BrokerError(f"join {address}: it was refused: {refusal.reason}") from None
        except (OSError, TimeoutError, UnicodeError) as error:
            reason = str(error) or type(error).__name__
            self._log.say(logging.WARNING, "join_unreachable", address=address, reason=reason)
        return found[0] if found else None
