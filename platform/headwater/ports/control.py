"""Control calls as a port: request and reply between brokers, off the data plane.

Real: gRPC on its own port (`headwater_broker.network.control_grpc` serves,
`headwater_broker.controller.control_client` calls); double: `headwater.testing.memory_control`.
Messages are the dataclasses of `headwater.wire.control`, whose bytes start with a format version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from headwater.errors import HeadwaterError
from headwater.wire.schema import Message

Reply = TypeVar("Reply", bound=Message)


class ControlUnavailableError(HeadwaterError):
    """No answer: refused, lost or late. The outcome is unknown."""


class ControlCalls(Protocol):
    """The calling side, on the broker's loop."""

    async def call(
        self, address: str, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Send to `host:port`, await the reply. Raises ControlUnavailableError."""
        ...

    async def close(self) -> None:
        """Close every channel."""
        ...


ControlHandler = Callable[[Message], Awaitable[Message]]
"""The serving side: the class of the request chooses the handler; it runs on the broker's loop."""
