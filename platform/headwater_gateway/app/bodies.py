"""Request bodies with limits: of length, of all at the same time, of the time between pieces."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from headwater_gateway.app.errors import GatewayError, overloaded, too_large

PIECE_S = 30.0
BODIES_BYTES_MAX = 512 * 1024 * 1024
"""Of all requests that are at work."""


class BodyBudget:
    """The memory for the bodies of all requests."""

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._in_use = 0

    @property
    def in_use(self) -> int:
        """Bytes that are held."""
        return self._in_use

    def take(self, size: int) -> None:
        """Raises GatewayError (429) when there is not so much left; negative: give back."""
        if size > 0 and self._in_use + size > self._bytes_max:
            raise overloaded("too many large requests are at work: send it again later")
        self._in_use += size


class BodyHold:
    """What one request holds of the budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._size = 0

    def set(self, size: int) -> None:
        """Hold so much from now on. Raises GatewayError (429)."""
        self._budget.take(size - self._size)
        self._size = size


def limited(scope: Scope, receive: Receive, bytes_max: int, hold: BodyHold) -> Receive:
    """`receive` that raises GatewayError: 413 for a longer body, 408 for one that stands still.

    429 when too much is held by all. A route that reads a stream without end, as v3's records,
    takes `scope["state"]["raw_receive"]` and `["body_hold"]`, and limits what it keeps itself.
    """
    size, is_over = 0, False
    scope["state"]["raw_receive"] = receive
    scope["state"]["body_hold"] = hold

    async def received() -> Message:
        nonlocal size, is_over
        if is_over:  # what comes is the client's going away: it may take as long as the reply
            return await receive()
        try:
            async with asyncio.timeout(PIECE_S):
                message = await receive()
        except TimeoutError:
            raise GatewayError(408, 408, f"no more of the body for {PIECE_S:.0f} s") from None
        is_over = message["type"] != "http.request" or not message.get("more_body", False)
        size += len(message.get("body", b""))
        if size > bytes_max:
            raise too_large(bytes_max)
        hold.set(size)
        return message

    return received


def declared_length(header: str) -> int:
    """The Content-Length; 0 without one."""
    return int(header) if header.isdigit() and len(header) < 20 else 0
