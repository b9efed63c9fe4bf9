"""Control calls between processes, with their real payloads, delays, losses and network partitions.

Each message has its own delay, so calls overtake each other. Request or reply may be lost: the
caller gets ControlUnavailableError and does not know the outcome, as with gRPC. Some requests that
the caller takes for lost arrive later, after they were repeated, like one that was in a socket when
its connection broke.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from headwater.errors import HeadwaterError, KafkaError
from headwater.ports.control import ControlHandler, ControlUnavailableError
from headwater.wire.control_payload import (
    NewerFormatError,
    PeerFormats,
    format_detail,
    format_of,
    pack,
    unpack,
)
from headwater.wire.schema import Message
from sim.loop import ProcessLoop
from sim.network import Network, Server, fail, settle
from sim.releases import Release

Reply = TypeVar("Reply", bound=Message)
Table = Mapping[type[Message], ControlHandler]

LATE_CHANCE = 0.5
"""The share of seemingly lost requests that arrive later."""
LATE_S = 4.0
KEEPALIVE_S = 8.0
"""How long a call waits on a cut link before its channel gives up."""


class ControlPlane:
    """The control ports of all processes."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.spoken: Counter[tuple[str, str, int]] = Counter()
        """Requests served, by (release of the caller, release of the callee, format)."""
        self.deaf: set[tuple[type[Message], str]] = set()
        """Requests that a host does not get for now: (their class, the host)."""
        self._served: dict[str, tuple[ProcessLoop, Table, Release]] = {}

    def serve(self, address: str, loop: ProcessLoop, table: Table, release: Release) -> None:
        """Answer calls to `address`."""
        self._served[address] = (loop, table, release)

    def stop(self, address: str, loop: ProcessLoop) -> None:
        """Refuse calls to `address`."""
        found = self._served.get(address)
        if found is not None and found[0] is loop:
            del self._served[address]

    def find(self, address: str) -> tuple[ProcessLoop, Table, Release] | None:
        """The server at an address, if its process runs."""
        found = self._served.get(address)
        return None if found is None or found[0].is_dead else found


class ControlDouble:
    """`headwater.ports.control.ControlCalls` of one process."""

    def __init__(self, plane: ControlPlane, loop: ProcessLoop, release: Release) -> None:
        self.release = release
        self._plane = plane
        self._loop = loop
        self._formats = PeerFormats()
        self._is_closed = False

    async def call(
        self, address: str, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Send a request and await the reply. Raises ControlUnavailableError, KafkaError."""
        name = type(request).__name__
        if self._is_closed:
            raise ControlUnavailableError(f"{name}: this client is closed")
        sent = self._formats.pack(address, self.release.sent(request))
        call = _Call(self._plane, self._loop, address, type(request), sent, self.release)
        call.start()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                payload = await call.answer
        except TimeoutError as error:
            call.give_up()
            raise ControlUnavailableError(f"{name} to {address}: no answer") from error
        except asyncio.CancelledError:
            call.give_up()
            raise
        except NewerFormatError as error:
            if not self._formats.is_older(address, sent, request.versions[0], format_detail(error)):
                raise ControlUnavailableError(f"{name} to {address}: {error}") from error
            return await self.call(address, request, reply, timeout_ms)
        return unpack(self.release.read_as(reply), payload)

    async def close(self) -> None:
        """Refuse further calls."""
        self._is_closed = True


class _Call:
    """One control call in flight: its request, then its reply."""

    def __init__(
        self, plane: ControlPlane, loop: ProcessLoop, address: str, request: type[Message],
        payload: bytes, release: Release,
    ) -> None:  # fmt: skip
        self.answer: asyncio.Future[bytes] = loop.create_future()
        self._plane = plane
        self._network = plane.network
        self._loop = loop
        self._address = address
        self._host = address.rpartition(":")[0]
        self._class = request
        self._payload = payload
        self._release = release
        self._task: asyncio.Task[None] | None = None
        self._there: ProcessLoop | None = None

    def start(self) -> None:
        """Send the request."""
        self._travel(self._loop.host, self._host, self._arrive, may_be_late=True)

    def _travel(
        self, source: str, target: str, work: Callable[[], None], *, may_be_late: bool = False
    ) -> None:
        network, scheduler = self._network, self._network.scheduler
        if not network.passes(source, target):
            wait_s = KEEPALIVE_S * (0.1 + 0.9 * scheduler.random.random())
            scheduler.later(wait_s, lambda: self._unavailable("the link is dead"))
        elif network.is_lost():
            scheduler.later(network.delay(source, target), lambda: self._unavailable("lost"))
            if may_be_late and scheduler.random.random() < LATE_CHANCE:
                scheduler.later(scheduler.random.random() * LATE_S, work)
        else:
            scheduler.later(network.delay(source, target), work)

    def _unavailable(self, reason: str) -> None:
        text = f"{self._class.__name__} to {self._address}: {reason}"
        self._loop.call_soon(fail, self.answer, ControlUnavailableError(text))

    def _arrive(self) -> None:
        found = self._plane.find(self._address)
        if found is None or (self._class, self._host) in self._plane.deaf:
            self._travel(self._host, self._loop.host, lambda: self._unavailable("refused"))
            return
        self._there, table, release = found
        self._there.call_soon(self._handle, table[self._class], release)

    def _handle(self, handler: ControlHandler, release: Release) -> None:
        assert self._there is not None
        self._task = self._there.create_task(self._serve(handler, release))

    async def _serve(self, handler: ControlHandler, release: Release) -> None:
        """Handle the request in the callee's process."""
        loop, answer = self._loop, self.answer
        try:
            request = unpack(release.read_as(self._class), self._payload)
            version = format_of(self._payload)
            self._plane.spoken[self._release.name, release.name, version] += 1
            release.received(request)
            payload = pack(release.sent(await handler(request)), version)
        except (KafkaError, NewerFormatError) as error:
            known: HeadwaterError = error
        except (HeadwaterError, asyncio.CancelledError) as error:
            known = ControlUnavailableError(f"{self._class.__name__}: {error!r}")
        else:
            self._travel(
                self._host, loop.host, lambda: loop.call_soon(settle, answer, payload) and None
            )
            return
        self._travel(self._host, loop.host, lambda: loop.call_soon(fail, answer, known) and None)

    def give_up(self) -> None:
        """The caller gives up: the handler is cancelled when the callee's process learns of it."""

        def cancel() -> None:
            if self._task is not None and self._there is not None:
                self._there.call_soon(self._task.cancel)

        self._network.scheduler.later(self._network.delay(self._loop.host, self._host), cancel)


class ControlPortDouble:
    """`headwater_broker.app.environment.ControlPort`."""

    def __init__(
        self, plane: ControlPlane, loop: ProcessLoop, table: Table, port: int, release: Release
    ) -> None:
        self.port = port
        self._release = release
        self._plane = plane
        self._loop = loop
        self._table = table
        self._server: Server | None = None
        self._address = f"{loop.host}:{port}"

    def start(self) -> int:
        """Serve calls, and plain connections, by which peers check whether this process runs."""
        self._server = self._plane.network.listen(self._loop, asyncio.Protocol, self.port)
        self._server.is_serving = True
        self._plane.serve(self._address, self._loop, self._table, self._release)
        return self.port

    async def stop_async(self, grace_s: float = 0.5) -> None:
        """Refuse new calls."""
        if self._server is not None:
            self._server.close()
        self._plane.stop(self._address, self._loop)
