"""The event loop of a broker in a test: a clock that can be moved, and addresses without ports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Any

from headwater import in_process
from headwater.clock import Clock


class InProcessLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on the broker's clock. Hosts of `headwater.in_process` are served by pairs of
    sockets, others as everywhere."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        """The clock's seconds: when it is moved, the timers that became due run."""
        return self._clock.monotonic()

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Listen on `host:port`, in this process if the host's name says so."""
        if isinstance(host, str) and host.endswith(in_process.SUFFIX):
            return InProcessServer(self, protocol_factory, host, port)
        return await super().create_server(protocol_factory, host, port, **options)


class _Listening:
    """A listening socket, as `network.listener` uses it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        """Its address."""
        return self._address

    def setsockopt(self, *_: object) -> None:
        """Nothing: a pair of sockets takes the system's buffers."""

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1


class InProcessServer:
    """Like `asyncio.Server`, for one address of `headwater.in_process`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
    ) -> None:
        self.sockets = [_Listening((host, port))]
        self._address = (host, port)
        self._loop = loop
        self._factory = factory
        self._accepting: set[asyncio.Task[Any]] = set()

    async def start_serving(self) -> None:
        """Accept connections."""
        in_process.serve(*self._address, self._accept)

    def close(self) -> None:
        """Refuse new connections."""
        in_process.withdraw(*self._address)

    def _accept(self, sock: socket.socket) -> None:
        try:
            self._loop.call_soon_threadsafe(self._begin, sock)
        except RuntimeError:  # the loop was closed since `in_process.dial` looked
            sock.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the broker has stopped") from None

    def _begin(self, sock: socket.socket) -> None:
        work = self._loop.connect_accepted_socket(self._factory, sock)
        task = self._loop.create_task(self._connect(work, sock))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    async def _connect(self, work: Any, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client has closed its end already
            await work
            return
        sock.close()
