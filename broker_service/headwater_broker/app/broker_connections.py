"""Connections from this broker to the data planes of the others: one per broker, on demand."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from headwater.errors import HeadwaterError
from headwater.ports.network import Connect, PeerConnection
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.schema import Message
from headwater_broker.metadata.cache import MetadataCache

REQUEST_TIMEOUT_S = 35.0
"""More than the 30 s that a leader waits for its followers. When a broker hangs for longer its
connection is closed, and all requests that wait there fail."""

R = TypeVar("R", bound=Message)


class BrokerConnections:
    """Requests to live brokers, pipelined."""

    def __init__(
        self,
        view: MetadataCache,
        connect: Connect,
        listener: str,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`listener`: the listener that brokers use among themselves."""
        self._view = view
        self._connect = connect
        self._listener = listener
        self._timeout_s = timeout_s
        self._open: dict[int, asyncio.Task[PeerConnection]] = {}
        self._correlation_id = 0

    async def call(self, broker_id: int, request: Message, version: int, reply: type[R]) -> R:
        """The broker's response. Raises OSError, TimeoutError, HeadwaterError.

        A request that meets a connection which was idle for too long is sent once more, so requests
        have to be idempotent.
        """
        is_reused = broker_id in self._open
        try:
            return await self._call(broker_id, request, version, reply)
        except ConnectionError:
            if not is_reused:
                raise
        return await self._call(broker_id, request, version, reply)

    async def _call(self, broker_id: int, request: Message, version: int, reply: type[R]) -> R:
        opening = self._open.get(broker_id)
        if opening is None:
            work = asyncio.get_running_loop().create_task(self._connected(broker_id))
            opening = self._open[broker_id] = work
        correlation_id = self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        body = encode_request(request, version, correlation_id, None)
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await _opened(opening)
                answer = await connection.request(body)
            return decode_response(reply, version, answer, correlation_id)
        except ValueError as error:  # of another request
            self._close(broker_id, opening)
            raise ConnectionError(str(error)) from error
        except (OSError, TimeoutError, HeadwaterError):
            self._close(broker_id, opening)
            raise

    async def _connected(self, broker_id: int) -> PeerConnection:
        broker = self._view.brokers.get(broker_id)
        for endpoint in broker.endpoints if broker is not None else ():
            if endpoint.listener == self._listener:
                return await self._connect(endpoint.host, endpoint.port)
        raise ConnectionError(f"broker {broker_id} is not live on listener {self._listener}")

    def live_brokers_changed(self) -> None:
        """A listener of `MetadataCache.on_brokers`: requests to dead brokers fail at once."""
        for broker_id, opening in list(self._open.items()):
            if broker_id not in self._view.brokers:
                self._close(broker_id, opening)

    def _close(self, broker_id: int, opening: asyncio.Task[PeerConnection]) -> None:
        if self._open.get(broker_id) is opening:
            del self._open[broker_id]
        if not opening.done():
            opening.cancel()
        elif not opening.cancelled() and opening.exception() is None:
            opening.result().close()

    async def close(self) -> None:
        """Close every connection."""
        tasks = list(self._open.values())
        for broker_id, opening in list(self._open.items()):
            self._close(broker_id, opening)
        await asyncio.gather(*tasks, return_exceptions=True)


async def _opened(opening: asyncio.Task[PeerConnection]) -> PeerConnection:
    """Shielded: a caller that is cancelled must not take the connection of the others along."""
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        if opening.cancelled():
            raise ConnectionError("the broker is gone") from None
        raise
