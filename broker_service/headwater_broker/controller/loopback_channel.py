"""Control calls of a broker to itself, without a socket: the controller is also a broker.

calls = LoopbackControlCalls(advertised_address, GrpcControlCalls())
port = calls.serve(handlers, ControlServer(...))    # start and stop this one
await calls.call(address, request, reply, timeout_ms)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol, TypeVar

from headwater.errors import HeadwaterError, KafkaError
from headwater.ports.control import ControlCalls, ControlHandler, ControlUnavailableError
from headwater.wire.schema import Message

Reply = TypeVar("Reply", bound=Message)
Table = Mapping[type[Message], ControlHandler]

logger = logging.getLogger(__name__)


class Served(Protocol):
    """The control port that other brokers call."""

    port: int

    def start(self) -> int:
        """Bind and serve; the port."""
        ...

    async def stop_async(self, grace_s: float = 0.5) -> None:
        """Refuse new calls. Calls in flight have `grace_s`."""
        ...


class LoopbackControlCalls:
    """`headwater.ports.control.ControlCalls` that handles calls to `address` on this loop."""

    def __init__(self, address: str, others: ControlCalls) -> None:
        self._address = address
        self._others = others
        self._table: Table = {}

    def serve(self, table: Table, port: Served) -> LoopbackControlPort:
        """A control port that serves `table`. While it is open, this broker's own calls use it."""
        return LoopbackControlPort(self, table, port)

    def set_handlers(self, table: Table) -> None:
        """Handle own calls with this table. With an empty one they go to the port."""
        self._table = table

    async def call(
        self, address: str, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Send to `host:port`, await the reply. Raises ControlUnavailableError, KafkaError."""
        handler = self._table.get(type(request)) if address == self._address else None
        if handler is None:
            return await self._others.call(address, request, reply, timeout_ms)
        name = type(request).__name__
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await handler(request)
        except TimeoutError as error:
            text = f"{name} to this broker: no answer within {timeout_ms} ms"
            raise ControlUnavailableError(text) from error
        except KafkaError:
            raise
        except HeadwaterError as error:
            raise ControlUnavailableError(f"{name} to this broker: {error!r}") from error
        except Exception as error:  # as the control port does for other brokers
            logger.exception("control handler of %s failed", name)
            raise ControlUnavailableError(f"{name} to this broker: {error!r}") from error
        if not isinstance(answer, reply):
            text = f"the reply is a {type(answer).__name__}, not a {reply.__name__}"
            raise ControlUnavailableError(text)
        return answer

    async def close(self) -> None:
        """Close the channels to other brokers."""
        await self._others.close()


class LoopbackControlPort:
    """A control port that this broker's own calls bypass."""

    def __init__(self, calls: LoopbackControlCalls, table: Table, port: Served) -> None:
        self._calls = calls
        self._table = table
        self._served = port
        self.port = port.port

    def start(self) -> int:
        """Bind and serve; the port. Raises UsageError when it is taken."""
        self.port = self._served.start()
        self._calls.set_handlers(self._table)
        return self.port

    async def stop_async(self, grace_s: float = 0.5) -> None:
        """Refuse new calls at once; those in flight have `grace_s`."""
        self._calls.set_handlers({})
        await self._served.stop_async(grace_s)
