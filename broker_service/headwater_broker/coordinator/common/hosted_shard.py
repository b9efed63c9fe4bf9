"""A shard that this broker hosts, with the requests that wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, NamedTuple

from headwater.errors import KafkaError
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
        "leader_replies",
        "loader",
        "name",
        "notified_end",
        "partition",
        "proof",
        "proving",
        "replies",
        "shard",
        "timer",
        "timer_at_ms",
        "turn",
        "unproven",
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
        self.leader_replies: list[tuple[Token, object]] = []
        """Replies of this turn that need a proof of leadership."""
        self.proof: asyncio.Handle | None = None
        """Set while there are some: appends the proof."""
        self.unproven: list[tuple[Token, object]] = []
        """Those whose proof could not be appended."""
        self.proving: asyncio.Task[None] | None = None
        """Asks the metadata store about them."""
        self.loader: asyncio.Task[None] | None = None
        self.replies: asyncio.Task[None] | None = None
        """Waits for the high watermark while replies are due."""
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at_ms = 0.0

    def answer(self, replies: list[tuple[Token, object]], deadline_ms: float, offset: int) -> None:
        """Let the replies wait until `offset` is committed. The due ones stay in the order of their
        offsets: a proof of leadership may be due at a higher one than what is decided after it."""
        due = self.due
        for token, reply in replies:
            future = self.waiting.pop(token, None)
            if future is None:
                continue
            at = len(due)
            while at and due[at - 1].offset > offset:
                at -= 1
            due.insert(at, DueReply(offset, deadline_ms, future, reply))

    def cancel(self) -> None:
        """Cancel what is planned, and the tasks but for the one that runs."""
        for handle in (self.timer, self.end_of_turn, self.proof):
            if handle is not None:
                handle.cancel()
        current = asyncio.current_task()
        for task in self.tasks:
            if task is not current:
                task.cancel()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that work for it."""
        return [t for t in (self.loader, self.replies, self.proving) if t is not None]

    def refuse(self, error: KafkaError) -> None:
        """Answer every request that waits with an error."""
        futures = [*self.waiting.values(), *(item.future for item in self.due)]
        self.waiting.clear()
        self.due.clear()
        for future in futures:
            if not future.done():
                future.set_exception(error)
