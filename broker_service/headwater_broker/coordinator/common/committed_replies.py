"""Gives replies once what they depend on is committed: the high watermark has passed it.

A reply that waits longer than the write timeout fails; the records stay replayed, because they are
in this leader's log: they commit later, or the leadership ends and the shard with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.appender import Appender
from headwater_broker.coordinator.common.client_errors import client_error
from headwater_broker.coordinator.common.hosted_shard import HostedShard
from headwater_broker.coordinator.common.shard import S, Token

COMMIT_WAIT_MS = 500
"""One wait for the high watermark without a reply that is due: a reply may become due meanwhile."""

OnCommitted = Callable[[int, int, S, int], None]
"""(partition, leader epoch, shard, high watermark): it has passed records that are replayed."""

logger = logging.getLogger(__name__)


class CommittedReplies(Generic[S]):
    """The replies of a runtime's shards that wait for the high watermark."""

    def __init__(
        self,
        appender: Appender,
        clock: Clock,
        write_timeout_ms: int,
        on_committed: OnCommitted[S] | None,
        is_current: Callable[[HostedShard[S]], bool],
        drop: Callable[[HostedShard[S], str], None],
        reload: Callable[[HostedShard[S], str], None],
    ) -> None:
        """`is_current`: the shard is hosted still. `drop`: leadership ended. `reload`: after an
        unforeseen error."""
        self._appender = appender
        self._clock = clock
        self._write_timeout_ms = write_timeout_ms
        self._on_committed = on_committed
        self._is_current = is_current
        self._drop = drop
        self._reload = reload

    def answer(
        self, hosted: HostedShard[S], replies: list[tuple[Token, object]], after: int | None = None
    ) -> None:
        """Give the replies when `after`, or all that is replayed by now, is committed."""
        deadline = self._clock.monotonic() * 1000 + self._write_timeout_ms
        hosted.answer(replies, deadline, hosted.last_replayed if after is None else after)

    def release(self, hosted: HostedShard[S]) -> None:
        """Give the replies that are committed; wait for the high watermark if others remain."""
        due = hosted.due
        if not self._is_current(hosted) or not (due or self._awaits_commit(hosted)):
            return
        try:
            end = self._appender.committed_end(hosted.partition, hosted.epoch)
        except KafkaError as error:
            self._drop(hosted, str(error))
            return
        hosted.give_below(end)
        self.committed(hosted, end)
        is_waiting = due or self._awaits_commit(hosted)
        if is_waiting and hosted.replies is None and hosted.turn.is_empty:
            hosted.replies = asyncio.get_running_loop().create_task(
                self._reply_when_committed(hosted)
            )

    def committed(self, hosted: HostedShard[S], end: int) -> None:
        """Tell `on_committed` of the high watermark, if it has risen."""
        if self._on_committed is not None and end > hosted.notified_end:
            hosted.notified_end = end
            self._on_committed(hosted.partition, hosted.epoch, hosted.shard, end)

    def _awaits_commit(self, hosted: HostedShard[S]) -> bool:
        """True while `on_committed` is to hear of records that are replayed."""
        return self._on_committed is not None and hosted.notified_end <= hosted.last_replayed

    async def _reply_when_committed(self, hosted: HostedShard[S]) -> None:
        """`_await_commits`; an unforeseen error reloads the shard, or no reply would be given."""
        try:
            await self._await_commits(hosted)
        except Exception:
            logger.exception("%s: replies failed; reloading", hosted.name)
            hosted.replies = None
            if self._is_current(hosted):
                self._reload(hosted, "replies failed")

    async def _await_commits(self, hosted: HostedShard[S]) -> None:
        """Wait for the high watermark while replies are due, or `on_committed` is."""
        due = hosted.due
        while self._is_current(hosted) and (due or self._awaits_commit(hosted)):
            head = due[0] if due else None
            offset, left_ms = hosted.last_replayed, float(COMMIT_WAIT_MS)
            if head is not None:
                offset = head.offset
                left_ms = head.deadline_ms - self._clock.monotonic() * 1000
            try:
                if left_ms <= 0:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"{hosted.name}: offset {offset} was not replicated within "
                        f"{self._write_timeout_ms} ms",
                    )
                await self._appender.committed(
                    hosted.partition, hosted.epoch, offset, int(left_ms) + 1
                )
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    hosted.replies = None
                    self._drop(hosted, str(error))
                    return
                if head is not None and due and due[0] is head:
                    due.popleft()
                    if not head.future.done():
                        head.future.set_exception(client_error(error))
                continue
            if self._is_current(hosted):
                self.release(hosted)
        hosted.replies = None
