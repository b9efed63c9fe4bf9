"""Request bodies with a limit: of length, and of the time that each piece may take."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from headwater_gateway.app.errors import GatewayError, too_large

PIECE_S = 30.0


def limited(scope: Scope, receive: Receive, bytes_max: int) -> Receive:
    """`receive` that raises GatewayError: 413 for a longer body, 408 for one that stands still.

    A route that reads a stream without end, as v3's records, takes `scope["state"]["raw_receive"]`
    and limits what it keeps itself.
    """
    size, is_over = 0, False
    scope["state"]["raw_receive"] = receive

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
        return message

    return received


def declared_length(header: str) -> int:
    """The Content-Length; 0 without one."""
    return int(header) if header.isdigit() and len(header) < 20 else 0
