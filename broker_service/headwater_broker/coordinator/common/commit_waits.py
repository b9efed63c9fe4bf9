"""Waits for the high watermark of hosted shards while replies, or the runtime's `on_committed`, are
due to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.appender import Appender
from headwater_broker.coordinator.common.client_errors import client_error
from headwater_broker.coordinator.common.hosted_shard import HostedShard
from headwater_broker.coordinator.common.shard import S

COMMIT_WAIT_MS = 500
"""One wait for the high watermark without a reply that is due: a reply may become due meanwhile."""

logger = logging.getLogger(__name__)


class CommitWaits(Generic[S]):
    """The waits of every shard of a runtime, one task per shard."""

    def __init__(
        self,
        appender: Appender,
        clock: Clock,
        is_due: Callable[[HostedShard[S]], bool],
        release: Callable[[HostedShard[S]], None],
        drop: Callable[[HostedShard[S], str], None],
        reload: Callable[[HostedShard[S], str], None],
    ) -> None:
        """`is_due`: the shard is hosted, and something waits for its high watermark. `release`:
        give what is committed. `drop`, `reload`: the shard, for a reason."""
        self._appender = appender
        self._clock = clock
        self._is_due = is_due
        self._release = release
        self._drop = drop
        self._reload = reload

    async def wait(self, hosted: HostedShard[S]) -> None:
        """Until nothing is due. An unforeseen error reloads the shard, or no reply would be
        given."""
        try:
            await self._wait(hosted)
        except Exception:
            logger.exception("%s: replies failed; reloading", hosted.name)
            hosted.replies = None
            self._reload(hosted, "replies failed")

    async def _wait(self, hosted: HostedShard[S]) -> None:
        due = hosted.due
        while self._is_due(hosted):
            head = due[0] if due else None
            offset, left_ms = hosted.last_replayed, float(COMMIT_WAIT_MS)
            if head is not None:
                offset = head.offset
                left_ms = head.deadline_ms - self._clock.monotonic() * 1000
            try:
                if left_ms <= 0:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"{hosted.name}: offset {offset} was not replicated in time",
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
            self._release(hosted)
        hosted.replies = None
