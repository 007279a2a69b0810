"""A connection: frames in, messages to its role; messages out, once per turn of the event loop.

Messages to send are collected and written when the turn of the event loop ends, all in one call: under load a turn has
many inputs, and each has many effects. Received messages are processed a few milliseconds at a time. Meanwhile nothing
more is read, so that one busy client keeps nobody else waiting for long, and its backlog is bounded. Nor is anything
read, or processed, from a peer that does not read what it is sent: its requests wait in its own memory.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol, cast

from meetpoint.api.codec import Codec, FrameReader, Piece, WireError, frames, split
from meetpoint.api.handshake import HANDSHAKE_VERSION, Hello, HelloRejected, NewIncarnation, Welcome
from meetpoint.api.messages import Message
from meetpoint.broker.config import Limits
from meetpoint.broker.transport.cpu_budget import PENALIZED_FROM, CpuBudget, penalty_after
from meetpoint.broker.transport.sockets import tune
from meetpoint.broker.transport.tls import TLS_FIRST_BYTE, TlsError, TlsPipe

__all__ = ["HANDSHAKE", "SLICE_S", "Connection", "FlushScheduler", "Role"]

HANDSHAKE: Final = Codec((Hello, Welcome, HelloRejected, NewIncarnation))
FRAME_BEFORE_MAX: Final = 4 << 10
"""The longest frame before the other side has said who it is."""
SLICE_S: Final = 0.01
"""About how long the messages of one connection are processed at a time."""
PENALIZED_SLICE_S: Final = 0.001
"""The same for a connection with a penalty."""
SLICE_CHECK: Final = 16
"""Number of messages after which the time is checked."""
FINISHING_MAX: Final = 64
"""Number of closed connections whose last messages are still processed; those of others are dropped."""
WRITE_HIGH: Final = 1 << 20
"""Number of bytes that wait in a transport when it is full."""


class FlushScheduler:
    """Flushes the connections with messages to send when a turn of the event loop ends, and runs checks then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._marked: list[Connection] = []
        self._is_expected = False
        self.checks: list[Callable[[], None]] = []
        self.cpu_budget = CpuBudget(loop)
        self.finishing = 0
        """Number of closed connections whose last messages are still being processed."""

    def mark(self, connection: Connection) -> None:
        """Flush a connection at the end of this turn."""
        self._marked.append(connection)
        self.expect()

    def expect(self) -> None:
        """Run the checks at the end of this turn."""
        if not self._is_expected:
            self._is_expected = True
            self.loop.call_soon(self._end)

    def _end(self) -> None:
        for check in self.checks:
            check()
        self._is_expected = False
        marked, self._marked = self._marked, []
        for connection in marked:
            connection.flush()


class Role(Protocol):
    """The use of a connection: takes its messages and its end."""

    def take(self, message: Message) -> None:
        """Take a message."""

    def refused(self, error: WireError) -> None:
        """Take note of bytes that are no message, or no frame."""

    def closed(self, reason: str) -> None:
        """Take note of the end of the connection."""

    def drained(self) -> None:
        """Take note that the other side takes bytes again."""


class Connection(asyncio.Protocol):
    """A TCP connection, with TLS inside where there is a pipe. Its first role is the handshake's; another follows."""

    def __init__(
        self, scheduler: FlushScheduler, limits: Limits, role: Callable[[Connection], Role], pipe: TlsPipe | None = None
    ) -> None:
        self._pipe = pipe
        self._has_received = False
        self.certificate: bytes | None = None
        """The certificate of the other side, signed by the authority, DER; None of most clients, and without TLS."""
        self._scheduler = scheduler
        self._limits = limits
        self._reader = FrameReader(FRAME_BEFORE_MAX, HANDSHAKE_VERSION)
        self.codec = HANDSHAKE
        self.version = HANDSHAKE_VERSION
        self.role = role(self)
        self.transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_marked = False
        self._backlog: deque[Piece] = deque()
        self._is_resuming = False
        self.is_held = False
        """Whether nothing is read from it, for now."""
        self.penalty = 0.0
        """The part of recent messages that was refused."""
        self.refusals = 0
        """Number of messages that were refused since that was last checked."""
        self._is_finishing = False
        self._waits_for_cpu = False
        self._is_reading = True
        self._has_begun = False
        self.is_over = False
        self.is_full = False
        self.bytes_in = 0
        self.bytes_out = 0
        self._reason = ""
        self.closed_for: tuple[str, str] | None = None
        """The kind and the reason of the refusal, where it was closed for making no progress."""
        self._stalled: tuple[int, float] | None = None
        self._frame_since: tuple[int, float] | None = None

    # -- beginning -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin on a new transport; called by the event loop."""
        transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if self.is_over:
            return transport.abort()  # it was turned away at once
        self.transport = transport
        tune(transport.get_extra_info("socket"), self._limits.stall_s)
        transport.set_write_buffer_limits(high=min(WRITE_HIGH, self._limits.client_queue_bytes // 2))
        if self._pipe is not None:
            transport.write(self._pipe.begin())
        self._wait_if_penalized()

    @property
    def host(self) -> str:
        """The host that the connection comes from, without a port, which says nothing of whose it is."""
        peer = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def begin(self, version: int, codec: Codec, role: Role) -> None:
        """Begin after the handshake: frames of a version, messages of a codec, and another role."""
        self.flush()
        self.version = self._reader.version = version
        self._reader.frame_max = self._limits.frame_bytes
        self.codec = codec
        self.role = role
        self._has_begun = True

    # -- what comes ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take received bytes; called by the event loop."""
        if self.penalty < PENALIZED_FROM:
            self._receive(data)
        else:
            begin = perf_counter()
            self._receive(data)
            self._charge(begin)

    def _charge(self, begin: float) -> None:
        """Charge the time since then to the CPU budget, and wait where that is spent."""
        self._scheduler.cpu_budget.spend(perf_counter() - begin)
        self._wait_if_penalized()
        self._resume()

    def _receive(self, data: bytes) -> None:
        if self._pipe is not None or not self._has_received:
            try:
                data = self._unwrap(data)
            except TlsError as error:
                self.role.refused(error)
                self.close(str(error))
                return
        if data:
            self._read_frames(data)
        if self._pipe is not None and self._pipe.has_ended and self.transport is not None:
            self.transport.write(self._pipe.goodbye())
            self.transport.close()  # what has come is taken when that is done, as where there is no TLS

    def _unwrap(self, data: bytes) -> bytes:
        """Take off TLS; a peer that wrongly speaks TLS, or does not, gets an error that it can read."""
        pipe = self._pipe
        if not self._has_received:
            self._has_received = True
            is_tls = data[0] == TLS_FIRST_BYTE
            if pipe is None and is_tls:
                raise TlsError("tls", "this port speaks no TLS: connect by mp://, or give the broker a certificate")
            if pipe is not None and pipe.is_server and not is_tls:
                self._pipe = None  # so that the answer can be read
                raise TlsError("plain", "this port speaks TLS only: connect by mps://, and brokers with [tls]")
        if pipe is None:
            return data
        assert self.transport is not None, "bytes come while it is open"
        was_ready = pipe.is_ready
        try:
            said = pipe.feed(data)
        finally:
            if pending := pipe.pending():
                self.transport.write(pending)
        if not was_ready and pipe.is_ready:
            self.certificate = pipe.certificate
            self.flush()
        return said

    def _read_frames(self, data: bytes) -> None:
        self.bytes_in += len(data)
        had_begun = self._has_begun
        try:
            for piece in self._reader.feed(data, None if had_begun else 1):
                self._backlog += split(piece, self.version)
            if self._reader.problem is not None:
                raise self._reader.problem
        except WireError as error:
            self._process_some()
            if not self.is_over:
                self.role.refused(error)
                self.close(str(error))
            return
        if not self._is_resuming:
            self._process_some()
        if had_begun != self._has_begun and self._reader.held and not self.is_over:
            self._read_frames(b"")  # what came with the handshake was kept back until it was known how to read it

    def _process_more(self) -> None:
        self._is_resuming = False
        begin, was_penalized = perf_counter(), self.penalty >= PENALIZED_FROM
        self._process_some()
        if was_penalized:
            self._charge(begin)

    def _process_some(self) -> None:
        backlog, is_penalized = self._backlog, self.penalty >= PENALIZED_FROM
        until = perf_counter() + (PENALIZED_SLICE_S if is_penalized else SLICE_S)
        count = 0
        while backlog and not self.is_over and self._may_process:
            self._process_one(backlog.popleft())
            count += 1
            if not count % SLICE_CHECK and perf_counter() > until:
                break
        if is_penalized or self.refusals:
            refused, self.refusals = self.refusals, 0
            self.penalty = penalty_after(self.penalty, max(0, count - refused), refused)
        if self._is_finishing and not backlog:
            self._end()
        else:
            self._resume()

    def _process_one(self, piece: Piece) -> None:
        try:
            message = self.codec.decode(piece)
        except WireError as error:
            self.refusals += error.kind != "unknown"  # which a newer broker may say with every right
            self.role.refused(error)
        else:
            self.role.take(message)

    def hold(self, held: bool) -> None:
        """Stop or go on reading and processing."""
        if self.is_held != held:
            self.is_held = held
            self._resume()

    def _wait_if_penalized(self) -> None:
        """Wait for the CPU budget, if this connection has a penalty."""
        if (
            self.penalty >= PENALIZED_FROM
            and not self._waits_for_cpu
            and not self.is_over
            and self._scheduler.cpu_budget.is_spent
        ):
            self._waits_for_cpu = True
            self._scheduler.cpu_budget.wait(self._on_cpu_time)
            self._set_reading()

    def _on_cpu_time(self) -> None:
        self._waits_for_cpu = False
        self._resume()

    @property
    def _may_process(self) -> bool:
        return not (self.is_held or self.is_full or self._waits_for_cpu)

    def _resume(self) -> None:
        """Process what was left, if that is allowed."""
        if self._backlog and self._may_process and not self._is_resuming and not self.is_over:
            self._is_resuming = True
            self._scheduler.loop.call_soon(self._process_more)
        self._set_reading()

    def _set_reading(self) -> None:
        wanted = self._may_process and not self._backlog
        if wanted != self._is_reading and self.transport is not None and not self.is_over:
            self._is_reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # -- what goes -----------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send a message at the end of this turn."""
        if self._is_finishing:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._is_marked:
            self._is_marked = True
            self._scheduler.mark(self)

    def flush(self) -> None:
        """Write the collected messages."""
        self._is_marked = False
        out, pipe = self._out, self._pipe
        if not out or self.transport is None or self.is_over or (pipe is not None and not pipe.can_send):
            return
        data = frames(out, self.version)
        self._out = []
        self._out_bytes = 0
        self.bytes_out += len(data)
        self.transport.write(data if pipe is None else pipe.wrap(data))
        if not self.is_full:
            self.role.drained()

    @property
    def queued_bytes(self) -> int:
        """Number of bytes that are still to be sent."""
        if self.transport is None or self.is_over:
            return 0
        return self._out_bytes + self.transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        """Hold back what is to be sent, as the other side reads too slowly; called by the event loop."""
        self.is_full = True
        self._stalled = None
        self._set_reading()

    def resume_writing(self) -> None:
        """Go on sending; called by the event loop."""
        self.is_full = False
        self._stalled = None
        if not self.is_over:
            self.role.drained()
            self._resume()

    # -- ending --------------------------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Write what is left, and close."""
        if not self.is_over and self.transport is not None:
            self._reason = self._reason or reason
            self.flush()
            if self._pipe is not None:
                self.transport.write(self._pipe.goodbye())
            self.transport.close()
            self._end()

    def abort(self, reason: str) -> None:
        """Close at once."""
        self._reason = self._reason or reason
        if self.transport is not None:
            self.transport.abort()
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        """Finish after the transport has closed; called by the event loop."""
        self._reason = self._reason or (str(error) if error else "the other side closed it")
        if isinstance(error, OSError) and error.errno == errno.ETIMEDOUT and not self.is_over:
            self.closed_for = "stalled", self._reason  # the kernel was quicker (`tune`)
        self.transport = None
        self.is_full = False
        scheduler = self._scheduler
        if self._backlog and not self.is_over and self.penalty < PENALIZED_FROM and scheduler.finishing < FINISHING_MAX:
            scheduler.finishing += 1
            self._is_finishing = True  # what was said before counts, and is taken in its turns
            self._resume()
        else:
            self._end()

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._backlog.clear()
            self._out.clear()
            self._scheduler.finishing -= self._is_finishing
            self.role.closed(self._reason)

    # -- what takes too long -------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Close a connection that makes no progress; called now and then."""
        if self.is_over or self.transport is None:
            return
        if self.is_full:
            left = self.transport.get_write_buffer_size()
            if self._stalled is None or self._stalled[0] != left:
                self._stalled = (left, now)
            elif now - self._stalled[1] >= self._limits.stall_s:
                self._give_up("stalled", f"it took nothing for {self._limits.stall_s:g} s")
                return
        if self._reader.held and self._is_reading:
            if self._frame_since is None or self._frame_since[0] != self._frames_read:
                self._frame_since = (self._frames_read, now)
            elif now - self._frame_since[1] >= self._limits.frame_s:
                self._give_up("slow_frame", f"a frame was not complete after {self._limits.frame_s:g} s")
        else:
            self._frame_since = None

    def _give_up(self, kind: str, reason: str) -> None:
        self.closed_for = kind, reason
        self.abort(reason)

    @property
    def _frames_read(self) -> int:
        return self.bytes_in - self._reader.held  # where the frame begins that is not complete
