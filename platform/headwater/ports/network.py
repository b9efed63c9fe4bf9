"""Connections between brokers as a port: one ordered byte stream of framed requests.

Real: `headwater.client.connection`; the simulator runs that over its own loop (`tests/sim`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class PeerConnection(Protocol):
    """A connection to one broker's data plane. Replies come in the order of the requests."""

    async def request(self, body: bytes) -> memoryview:
        """Send one request (header and body, without its length prefix); await its reply.

        The reply is header and body, and stays valid. Raises ConnectionError when the peer goes.
        """
        ...

    def close(self) -> None:
        """Drop the connection; pending requests fail with ConnectionError."""
        ...


Connect = Callable[[str, int], Awaitable[PeerConnection]]
"""(host, port) -> an open connection. Raises OSError."""
