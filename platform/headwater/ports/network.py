"""Connections between brokers as a port: requests and replies of the data plane, in order.

Real: `headwater.client.connection`; the simulator runs that over its own loop (`tests/sim`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class PeerConnection(Protocol):
    """A connection to one broker's data plane. Replies come in the order of the requests."""

    async def request(self, body: bytes) -> memoryview:
        """Send one request (header and body, without the length prefix) and await its reply.

        The reply is header and body; its memory stays valid. Raises ConnectionError.
        """
        ...

    def close(self) -> None:
        """Close the connection. Pending requests fail with ConnectionError."""
        ...


Connect = Callable[[str, int], Awaitable[PeerConnection]]
"""(host, port) -> an open connection. Raises OSError."""
