"""TCP between the hosts of a world, with seeded delays, losses and cut links.

A stream keeps its order, as in TCP: a lost segment arrives later and delays those behind it. While
a link is cut nothing passes, and sent data waits. The connections of a dead process are reset; a
host without power is silent until it is back.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from sim.loop import ProcessLoop, Scheduler

RETRANSMIT_S = 0.2
SYN_RETRY_S = 1.0
RESET_S = 1.0
"""How long after the return of its peer's host an old connection is reset."""
DELAY_S = (0.0001, 0.002)
DATA_PORT = 9092
CONTROL_PORT = 9093


class Network:
    """Hosts, the links between them, and listening ports."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.cut: set[tuple[str, str]] = set()
        """Cut links: (from, to)."""
        self.dark: set[str] = set()
        """Hosts without power."""
        self.slow: dict[str, float] = {}
        """Host -> additional delay of each of its messages, in seconds."""
        self.loss = 0.0
        """The probability that a segment or a control message is lost."""
        self.tap: Callable[[Transport, bytes], bool] | None = None
        """Sees what callers write to their streams; True: it takes the data off the stream."""
        self._listening: dict[tuple[str, int], Server] = {}
        self._streams: dict[ProcessLoop, list[Transport]] = {}

    def delay(self, source: str, target: str) -> float:
        """The delay of one message."""
        random = self.scheduler.random
        longer = self.slow.get(source, 0.0) + self.slow.get(target, 0.0)
        return DELAY_S[0] + (DELAY_S[1] + longer) * random.random()

    def is_lost(self) -> bool:
        """Whether this message is lost."""
        return self.loss > 0 and self.scheduler.random.random() < self.loss

    def passes(self, source: str, target: str) -> bool:
        """Whether messages pass from one host to the other now."""
        return (source, target) not in self.cut and not self.dark & {source, target}

    def mend(self) -> None:
        """Mend all links: waiting data is sent."""
        self.cut.clear()
        self.slow.clear()
        self.loss = 0.0
        self.pump()

    def pump(self) -> None:
        """Send waiting data on links that work again."""
        for transports in self._streams.values():
            for transport in transports:
                transport.pump()

    def listen(self, loop: ProcessLoop, factory: Any, port: int) -> Server:
        """Listen on a port of the process's host. Raises OSError(EADDRINUSE)."""
        key = (loop.host, port)
        held = self._listening.get(key)
        if held is not None and not held.loop.is_dead:
            raise OSError(errno.EADDRINUSE, "address in use")
        server = self._listening[key] = Server(self, loop, factory, key)
        return server

    def unlisten(self, server: Server) -> None:
        """Stop listening."""
        if self._listening.get(server.key) is server:
            del self._listening[server.key]

    async def connect(self, loop: ProcessLoop, factory: Any, host: str, port: int) -> Any:
        """See `loop.create_connection`. It waits while the peer is unreachable."""
        answered: asyncio.Future[Transport] = loop.create_future()

        def arrive() -> None:
            if loop.is_dead or answered.done():
                return
            if not self.passes(loop.host, host) or not self.passes(host, loop.host):
                self.scheduler.later(SYN_RETRY_S, arrive)
                return
            server = self._listening.get((host, port))
            if server is None or server.loop.is_dead or not server.is_serving:
                refused = ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses")
                loop.call_soon(fail, answered, refused)
                return
            ours = Transport(self, loop, host)
            theirs = Transport(self, server.loop, loop.host)
            ours.peer, theirs.peer = theirs, ours
            ours.is_caller = True
            server.loop.call_soon(lambda: theirs.open(server.factory()))
            way_back_s = self.delay(host, loop.host)
            self.scheduler.later(way_back_s, lambda: loop.call_soon(settle, answered, ours))

        self.scheduler.later(self.delay(loop.host, host), arrive)
        transport = await answered
        protocol = factory()
        transport.open(protocol)
        return transport, protocol

    def enter(self, transport: Transport) -> None:
        """A process has opened one end of a stream."""
        self._streams.setdefault(transport.loop, []).append(transport)

    def leave(self, transport: Transport) -> None:
        """It has closed that end."""
        rows = self._streams.get(transport.loop, [])
        if transport in rows:
            rows.remove(transport)

    def process_died(self, loop: ProcessLoop) -> None:
        """Reset its connections, unless its host has no power: then peers do not notice."""
        for transport in self._streams.pop(loop, []):
            transport.is_closed = True
            peer = transport.peer
            if peer is None:
                continue
            if loop.host in self.dark:
                peer.is_orphan = True
            else:
                peer.reset_later(self.delay(loop.host, peer.loop.host))

    def host_is_back(self, host: str) -> None:
        """A host has power again and resets connections that it does not know."""
        self.dark.discard(host)
        for transports in list(self._streams.values()):
            for transport in list(transports):
                if transport.is_orphan and transport.peer_host == host:
                    transport.reset_later(self.scheduler.random.random() * RESET_S)
        self.pump()


class _Listening:
    """The methods of a listening socket that `Listener` uses."""

    def __init__(self, key: tuple[str, int]) -> None:
        self._key = key

    def getsockname(self) -> tuple[str, int]:
        return self._key

    def fileno(self) -> int:
        return -1


class Server:
    """Like `asyncio.Server`."""

    def __init__(
        self, network: Network, loop: ProcessLoop, factory: Any, key: tuple[str, int]
    ) -> None:
        self.loop = loop
        self.factory = factory
        self.key = key
        self.is_serving = False
        self.sockets = [_Listening(key)]
        self._network = network

    async def start_serving(self) -> None:
        """Accept connections. Before, they are refused: a bound port does not listen yet."""
        self.is_serving = True

    def close(self) -> None:
        self.is_serving = False
        self._network.unlisten(self)


class Transport(asyncio.Transport):
    """One end of a stream. Its data arrives at `peer` in order; None marks the end of the
    stream."""

    def __init__(self, network: Network, loop: ProcessLoop, peer_host: str) -> None:
        super().__init__()
        self.loop = loop
        self.peer_host = peer_host
        self.peer: Transport | None = None
        self.is_caller = False
        """Whether this end opened the connection."""
        self.is_closed = False
        self.is_pinned = False
        """Data for it is on its way that was sent before its peer ended: it is open until then."""
        self.is_orphan = False
        """The peer's host lost its power: it answers no more."""
        self._network = network
        self._protocol: Any = None
        self._on_way: deque[tuple[float, bytes | None]] = deque()
        self._is_pumping = False
        self._inbox: deque[memoryview | None] = deque()
        self._is_paused = False
        self._is_reading = False

    def open(self, protocol: Any) -> None:
        """The connection is established."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self.is_closed:
            protocol.connection_lost(_reset())
            return
        self._network.enter(self)
        self._read_soon()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer_host, 0) if name == "peername" else default

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def is_closing(self) -> bool:
        return self.is_closed

    # -- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closed or self.is_orphan:
            return
        tap = self._network.tap
        if tap is None or not self.is_caller or not tap(self, bytes(data)):
            self._send(bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def _send(self, data: bytes | None) -> None:
        network, scheduler = self._network, self._network.scheduler
        when = scheduler.now + network.delay(self.loop.host, self.peer_host)
        if network.is_lost():
            when += RETRANSMIT_S
        if self._on_way:
            when = max(when, self._on_way[-1][0])
        self._on_way.append((when, data))
        if not self._is_pumping:
            self._is_pumping = True
            scheduler.at(when, self._arrive)

    def _arrive(self) -> None:
        self._is_pumping = False
        network, scheduler = self._network, self._network.scheduler
        peer = self.peer
        if peer is None or not network.passes(self.loop.host, self.peer_host):
            return  # `pump`, when the link is mended
        while self._on_way and self._on_way[0][0] <= scheduler.now:
            peer.take(self._on_way.popleft()[1])
        if self._on_way:
            self._is_pumping = True
            scheduler.at(self._on_way[0][0], self._arrive)

    def pump(self) -> None:
        """Send waiting data if the link works again."""
        if self._on_way and not self._is_pumping:
            self._is_pumping = True
            when = self._network.scheduler.now + RETRANSMIT_S
            self._network.scheduler.at(max(when, self._on_way[0][0]), self._arrive)

    # -- reading

    def take(self, data: bytes | None) -> None:
        """Data has arrived; None: the end of the stream."""
        if not self.is_closed:
            self._inbox.append(None if data is None else memoryview(data))
            self._read_soon()

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._read_soon()

    def _read_soon(self) -> None:
        if self._inbox and not self._is_reading and self._protocol is not None:
            self._is_reading = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_reading = False
        if self.is_closed or self._is_paused or not self._inbox:
            return
        data = self._inbox.popleft()
        if data is None:
            if not self._protocol.eof_received():
                self.close()
            return
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = memoryview(cast(Any, self._protocol.get_buffer(-1)))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            if count < len(data):
                self._inbox.appendleft(data[count:])
            self._protocol.buffer_updated(count)
        else:
            self._protocol.data_received(bytes(data))
        self._read_soon()

    # -- the end

    def close(self) -> None:
        if not self.is_closed:
            self._send(None)
            self._end(None)

    def get_write_buffer_size(self) -> int:
        """Always 0: written data is with the kernel."""
        return 0

    def abort(self) -> None:
        if self.is_closed:
            return
        self._on_way.clear()
        if self.peer is not None:
            self.peer.reset_later(self._network.delay(self.loop.host, self.peer_host))
        self._end(None)

    def reset_later(self, delay_s: float) -> None:
        """Reset this end after a delay."""
        network = self._network

        def arrive() -> None:
            if not network.passes(self.peer_host, self.loop.host):
                network.scheduler.later(SYN_RETRY_S, arrive)
            else:
                self.loop.call_soon(self._end, _reset())

        network.scheduler.later(delay_s, arrive)

    def _end(self, error: Exception | None) -> None:
        if self.is_closed or self.is_pinned:
            return
        self.is_closed = True
        self._network.leave(self)
        if self._protocol is not None:
            self.loop.call_soon(self._protocol.connection_lost, error)


def settle(future: asyncio.Future[Any], value: Any) -> None:
    """Set the result, unless the future is done."""
    if not future.done():
        future.set_result(value)


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Set the error, unless the future is done."""
    if not future.done():
        future.set_exception(error)


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
