"""A shard that this broker hosts, with the requests that wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, NamedTuple, Protocol

from headwater.errors import KafkaError
from headwater_broker.coordinator.common.shard import S, Token
from headwater_broker.coordinator.common.turn_batches import TurnBatches


class Waiter(Protocol):
    """The receiver of a reply: the part of a future that is needed."""

    def done(self) -> bool:
        """True when nobody waits any more."""
        ...

    def set_result(self, reply: object, /) -> None:
        """Give the reply."""
        ...

    def set_exception(self, error: KafkaError, /) -> None:
        """Give an error."""
        ...


class DueReply(NamedTuple):
    """A decided reply that waits until the high watermark has passed `offset`."""

    offset: int
    deadline_ms: float
    future: Waiter
    reply: object


class HostedShard(Generic[S]):
    """One hosted shard: it loads until `is_active`."""

    __slots__ = (
        "due",
        "epoch",
        "is_active",
        "is_in_turn",
        "last_replayed",
        "last_token",
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
        self.is_in_turn = False
        """True once a command of this turn of the loop was appended: what follows is appended at
        its end."""
        self.waiting: dict[Token, Waiter] = {}
        self.last_token: Token = 0
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

    def expect(self, waiter: Waiter) -> Token:
        """The token of the reply that `waiter` waits for."""
        token = self.last_token = self.last_token + 1
        self.waiting[token] = waiter
        return token

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

    def give_below(self, end: int) -> None:
        """Give the replies that wait for an offset below `end`."""
        due = self.due
        while due and due[0].offset < end:
            item = due.popleft()
            _give(item.future, item.reply)

    def give(self, replies: list[tuple[Token, object]]) -> None:
        """Give replies that wait for nothing."""
        for token, reply in replies:
            waiter = self.waiting.pop(token, None)
            if waiter is not None:
                _give(waiter, reply)

    def fail_from(self, offset: int, error: KafkaError) -> None:
        """Give the error to all that wait for `offset` or a later one."""
        for item in list(self.due):
            if item.offset >= offset and not item.future.done():
                item.future.set_exception(error)

    def cancel(self) -> None:
        """Cancel what is planned, and the tasks but for the one that runs."""
        for handle in (self.timer, self.proof):
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


def _give(waiter: Waiter, reply: object) -> None:
    if waiter.done():
        return
    if isinstance(reply, KafkaError):
        waiter.set_exception(reply)
    else:
        waiter.set_result(reply)
