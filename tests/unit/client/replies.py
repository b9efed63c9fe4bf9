"""Changes, delays or refuses brokers' replies on their way to a client, as a test wants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from headwater.client.connection import Connection
from headwater.wire.apis.k02_list_offsets import ListOffsetsResponse
from headwater.wire.schema import Message

R = TypeVar("R", bound=Message)


def change_replies(
    monkeypatch: pytest.MonkeyPatch, kind: type[R], change: Callable[[R], Awaitable[R]]
) -> None:
    """Each reply of this kind goes through `change` before the client sees it."""
    real = Connection.call

    async def call(self: Connection, request: Any, reply_type: Any, **more: Any) -> Any:
        reply = await real(self, request, reply_type, **more)
        return await change(reply) if reply_type is kind else reply

    monkeypatch.setattr(Connection, "call", call)


def with_offset_row(reply: ListOffsetsResponse, **fields: Any) -> ListOffsetsResponse:
    """The reply with other values in the row of its one partition."""
    (topic,) = reply.topics
    (row,) = topic.partitions
    changed = replace(topic, partitions=(replace(row, **fields),))
    return replace(reply, topics=(changed,))
