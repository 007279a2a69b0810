"""Startup of a broker: checks, the search for its network, and compilation of kernels.

`check_records` and `advice` look at what must fit, or should: the data, the settings of the scheme, the certificate.
Ids are as wide as the overlay says, so that data kept on another overlay is known by the width of its ids.

`Bootstrap` asks the addresses that the broker is told to join.

`warm_up` has another process compile the index kernels (`meetpoint[fast]`), which a node with many subscriptions
matches by. They are compiled when they are first called, which takes half a minute after an installation or an upgrade,
and a broker that stands still for so long is taken for lost by everybody. So a broker whose kernels are not on disk
goes on without an index, and has a child compile them once one is wanted. A broker that has very many filters on its
disk waits for the child first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import meetpoint
from meetpoint.api.handshake import Hello, Welcome
from meetpoint.api.ids import NodeId, Peer
from meetpoint.broker.config import BrokerConfig, BrokerError, parse_address
from meetpoint.broker.observe.logs import Log, Refusals
from meetpoint.broker.peers.dialer import Refusal, dial
from meetpoint.broker.transport.connection import Connection, FlushScheduler
from meetpoint.broker.transport.tls import TlsPolicy
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.matcher import postponed_index
from meetpoint.node.runtime.records import Record

if TYPE_CHECKING:
    from meetpoint.archive import Archive

__all__ = [
    "Advice", "Bootstrap", "advice", "advice_on_tls", "are_compiled", "check_records", "open_archive", "read_schema",
    "warm_up",
]  # fmt: skip

GRACE_S: Final = 0.3
"""Time that further brokers are waited for, when one is known."""


class Bootstrap:
    """Asks the brokers that this one is told to join."""

    def __init__(
        self,
        config: BrokerConfig,
        tls_policy: TlsPolicy,
        scheduler: FlushScheduler,
        refusals: Refusals,
        log: Log,
        me: Peer,
        knows_others: bool,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._tls_policy = tls_policy
        self._scheduler = scheduler
        self._refusals = refusals
        self._log = log
        self._me = me
        self._knows_others = knows_others
        """Whether the disk tells of other brokers, so that nobody need be named."""
        self._say = say
        """Called with what it waits for, in words."""

    async def find(self) -> tuple[Peer, ...] | None:
        """Return the brokers that answer at `join`; None where none does and one must."""
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
        """Ask all addresses; wait a moment for all, and without end for the first where no other broker is known."""
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
        """Return the broker at an address; None where nobody answers, or nobody who is believed."""
        found: list[Peer] = []

        def welcomed(connection: Connection, message: Welcome) -> None:
            found.append(message.broker)

        hello = Hello(self._config.wire_versions, self._config.network, self._me, way=self._config.way)
        try:
            connection = await dial(self._config, self._tls_policy, self._scheduler, address, hello, welcomed)
            connection.close("it was only a question")
        except Refusal as refusal:
            if refusal.kind:  # it is not believed: whoever sits at an address cannot keep this broker from starting
                self._refusals.refuse(refusal.kind, address=address, reason=refusal.reason)
                self._say(f"join {address}: {refusal.reason}")
            elif not refusal.retry:
                raise BrokerError(f"join {address}: it was refused: {refusal.reason}") from None
        except (OSError, TimeoutError, UnicodeError) as error:
            reason = str(error) or type(error).__name__
            self._log.write(logging.WARNING, "join_unreachable", address=address, reason=reason)
        return found[0] if found else None


CERTIFICATE_S_MIN: Final = 14 * 86_400.0
"""Remaining time of a certificate below which a broker warns."""


def check_records(config: BrokerConfig, records: Iterable[Record]) -> None:
    """Refuse data that was kept on another overlay: ids of homes have the overlay's width."""
    width = config.network_config().ring.width
    other = next((len(record.home) for record in records if len(record.home) not in (0, width)), None)
    if other is not None:
        raise BrokerError(
            f"data {config.data}: was kept on an overlay of {8 * other}-bit ids, {config.overlay} has {8 * width}; "
            "set overlay as it was, or use another folder"
        )


class Advice(NamedTuple):
    """A warning: a setting that is allowed and hardly wanted, and what to do."""

    problem: str
    todo: str


def advice(config: BrokerConfig) -> list[Advice]:
    """Return the warnings for a configuration."""
    found: list[Advice] = []
    network = config.network_config()
    scheme = network.scheme
    told = {"dmm": network.dmm.schema, "reach": network.reach.schema or network.reach.ids == "signatures"}
    if not told.get(scheme, True):
        problem = f"{scheme} without attributes: one broker holds all subscriptions"
        todo = f"list them as YAML in {scheme}.schema, the same at all brokers (docs/{scheme}.md)"
        found.append(Advice(problem, todo))
    if (address := config.open_address) is not None and config.unguarded:
        problem = (
            f"insecure: other machines can connect to {address}, and there is no {' and no '.join(config.unguarded)}"
        )
        found.append(Advice(problem, "give both (docs/security.md), or listen at 127.0.0.1"))
    return found


def advice_on_tls(config: BrokerConfig, tls_policy: TlsPolicy, address: str) -> list[Advice]:
    """Return the warnings for a certificate, at the start and after it was read again."""
    found: list[Advice] = []
    if tls_policy.identity is None:
        return found
    certificate, host = config.tls.certificate, parse_address(address, "address").host
    left_s = tls_policy.expires - time.time()
    if left_s < CERTIFICATE_S_MIN:
        problem = f"tls.certificate {certificate} ends in {max(0.0, left_s / 86_400):.1f} days"
        found.append(Advice(problem, "have another issued (meetpoint ca issue), copy it there, and send SIGHUP"))
    if not tls_policy.names(host):
        problem = f"tls.certificate {certificate} does not name {host}, where this broker is reached: clients refuse it"
        found.append(Advice(problem, f"have one issued with --address {host} (meetpoint ca issue), and send SIGHUP"))
    return found


def open_archive(config: BrokerConfig, name: str) -> Archive | None:
    """Open the archive of a broker, if its configuration names a folder."""
    if config.archive.folder is None:
        return None
    from meetpoint.archive import Archive

    writer = hashlib.sha256(name.encode()).hexdigest()[:16]
    return Archive.open(config.archive.folder, config.network, writer)


def read_schema(path: str | None) -> str | None:
    """Return the text of a schema file after checking it."""
    return None if path is None else Schema.from_yaml(Path(path)).to_yaml()


COMPILE_S_MAX: Final = 600.0
"""Time after which a compiling child is ended."""
WAIT_FROM = 10_000
"""Number of filters that are not worth serving without an index."""
_OF_FILTERS: Final = ("subscription/", "placed/")
LOOK_S: Final = 0.25
"""How often the broker checks whether an index is wanted."""
MODULE: Final = "meetpoint.matching.index.warmup"
_KERNELS: Final = Path(meetpoint.__file__).parent / "matching" / "index" / "kernels"
_MARK: Final = f"meetpoint-{sys.implementation.cache_tag}.warm"
"""The `MARK` of that module, which is not imported for it: it loads NumPy and Arrow."""


async def warm_up(
    config: BrokerConfig,
    records: Iterable[Record],
    log: Log,
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
) -> None:
    """Have kernels compiled where there is a compiler and they are not on disk; with many filters, wait for that.

    A broker without data belongs to a test or a notebook, and is left alone.
    """
    if config.data is None or find_spec("numba") is None or are_compiled(_folders(os.environ)):
        return
    has_many = sum(record.name.startswith(_OF_FILTERS) for record in records) >= WAIT_FROM
    compiling = spawn(_compile(log, at_once=has_many))
    if has_many:
        await asyncio.wait([compiling])


def are_compiled(folders: Iterable[Path]) -> bool:
    """Return whether one of the folders has kernels that were compiled after their source was installed."""
    kept = [path.stat().st_mtime for folder in folders for path in folder.rglob(_MARK)]
    return max(kept, default=0.0) > max(path.stat().st_mtime for path in _KERNELS.glob("*.py"))


def _folders(environment: Mapping[str, str]) -> list[Path]:
    """Return where numba keeps code, by its settings: a folder of its own, beside the source, or the user's."""
    if folder := environment.get("NUMBA_CACHE_DIR"):
        return [Path(folder)]
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", os.sep)) / ".cache"
    return [_KERNELS / "__pycache__", Path(home) / "numba"]


async def _compile(log: Log, *, at_once: bool) -> None:
    with postponed_index() as postponed:
        while not (at_once or postponed.is_wanted):
            await asyncio.sleep(LOOK_S)
        began = monotonic()
        log.write(logging.INFO, "index_compiling", todo="nothing; it happens once for each version that is installed")
        code = await _run_child()
    if code == 0:
        log.write(logging.INFO, "index_compiled", seconds=round(monotonic() - began, 1))
    else:
        todo = "set NUMBA_CACHE_DIR to a folder that this user may write to; else it stands still once per start"
        log.write(logging.WARNING, "index_not_compiled", code=code, todo=todo)


async def _run_child() -> int | None:
    """Run the compiling child, and return its exit code; None where it took too long."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, "--attached",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )
    )  # fmt: skip
    try:
        child = await asyncio.shield(starting)
        return await asyncio.wait_for(child.wait(), COMPILE_S_MAX)
    except TimeoutError:
        return None
    finally:
        child = await starting  # also where this was ended while it began
        if child.returncode is None:
            child.kill()
            await child.wait()
