"""Control calls as a port: requests between brokers on the control plane.

Real: gRPC on its own port (`headwater_broker.network.control_grpc` is the server,
`headwater_broker.controller.control_client` the client); double:
`headwater.testing.memory_control`. Messages are the dataclasses of `headwater.wire.control`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from headwater.errors import HeadwaterError
from headwater.wire.schema import Message

Reply = TypeVar("Reply", bound=Message)


TLS_SCHEME = "tls://"


def tls_address(address: str) -> str:
    """The address `host:port` of a control port with TLS."""
    return TLS_SCHEME + address


def plain_address(address: str) -> str:
    """`host:port` of an address with or without TLS."""
    return address.removeprefix(TLS_SCHEME)


class ControlUnavailableError(HeadwaterError):
    """No reply: the call was refused or lost, or the reply is late. The outcome is unknown."""


class ControlCalls(Protocol):
    """The client side of control calls, on the broker's loop."""

    async def call(
        self, address: str, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Send a request to `host:port` and await the reply. Raises ControlUnavailableError."""
        ...

    async def close(self) -> None:
        """Close every channel."""
        ...


ControlHandler = Callable[[Message], Awaitable[Message]]
"""A handler on the server side, chosen by the request's class. It runs on the broker's loop."""
