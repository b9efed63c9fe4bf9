"""A shard that this broker hosts, with the requests that wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, NamedTuple

from headwater_broker.coordinator.common.shard import S, Token
from headwater_broker.coordinator.common.turn_batches import TurnBatches


class DueReply(NamedTuple):
    """A decided reply that waits until the high watermark has passed `offset`."""

    offset: int
    deadline_ms: float
    future: asyncio.Future[object]
    reply: object


class HostedShard(Generic[S]):
    """One hosted shard: it loads until `is_active`."""

    __slots__ = (
        "due",
        "end_of_turn",
        "epoch",
        "is_active",
        "last_replayed",
        "loader",
        "name",
        "notified_end",
        "partition",
        "replies",
        "shard",
        "timer",
        "timer_at_ms",
        "turn",
        "waiting",
    )

    def __init__(self, topic: str, partition: int, epoch: int, shard: S) -> None:
        self.name = f"{topic}-{partition}"
        self.partition = partition
        self.epoch = epoch
        self.shard = shard
        self.is_active = False
        self.last_replayed = -1
        self.notified_end = 0
        """The high watermark that the runtime's `on_committed` had last."""
        self.turn = TurnBatches()
        self.end_of_turn: asyncio.Handle | None = None
        """Set once a command of this turn of the loop was appended: appends what followed."""
        self.waiting: dict[Token, asyncio.Future[object]] = {}
        self.due: deque[DueReply] = deque()
        self.loader: asyncio.Task[None] | None = None
        self.replies: asyncio.Task[None] | None = None
        """Waits for the high watermark while replies are due."""
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at_ms = 0.0
