"""Test double of control calls: messages are really encoded, and connections can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from headwater.ports.control import ControlHandler, ControlUnavailableError
from headwater.wire.control_payload import pack, unpack
from headwater.wire.schema import Message

Reply = TypeVar("Reply", bound=Message)


class MemoryControlNetwork:
    """A network of control ports in memory."""

    def __init__(self) -> None:
        self._served: dict[str, Mapping[type[Message], ControlHandler]] = {}
        self._cut: set[str] = set()
        self.log: list[tuple[str, Message]] = []
        """(address, request) of every call that arrived."""

    def serve(self, address: str, handlers: Mapping[type[Message], ControlHandler]) -> None:
        """Answer calls to `address`."""
        self._served[address] = handlers

    def stop(self, address: str) -> None:
        """Refuse calls to `address` from now on."""
        self._served.pop(address, None)

    def cut(self, address: str) -> None:
        """Calls to `address` get no reply until `mend`."""
        self._cut.add(address)

    def mend(self, address: str) -> None:
        """Undo `cut`."""
        self._cut.discard(address)

    def calls(self) -> MemoryControl:
        """A client on this network."""
        return MemoryControl(self)

    async def deliver(
        self, address: str, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Deliver one request and return its reply."""
        await asyncio.sleep(0)
        if address in self._cut:
            await asyncio.sleep(timeout_ms / 1000)
            raise ControlUnavailableError(f"{type(request).__name__} to {address}: no answer")
        handler = self._served.get(address, {}).get(type(request))
        if handler is None:
            raise ControlUnavailableError(f"{type(request).__name__} to {address}: refused")
        arrived = unpack(type(request), pack(request))
        self.log.append((address, arrived))
        answer = await handler(arrived)
        await asyncio.sleep(0)
        return unpack(reply, pack(answer))


class MemoryControl:
    """`headwater.ports.control.ControlCalls` on a network in memory."""

    def __init__(self, network: MemoryControlNetwork) -> None:
        self._network = network

    async def call(
        self, address: str, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Send a request and await the reply. Raises ControlUnavailableError."""
        return await self._network.deliver(address, request, reply, timeout_ms)

    async def close(self) -> None:
        """Nothing to close."""
