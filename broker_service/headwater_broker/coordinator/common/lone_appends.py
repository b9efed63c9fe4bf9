"""Appends of a leader without followers: a decision is committed as soon as it is appended.

So its replies are given at once, and it waits for no others of its turn of the loop: one batch per
decision costs less here than to collect them. Whatever is unusual goes the way of all other
decisions, which `CoordinatorRuntime` knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.appender import LoneLog
from headwater_broker.coordinator.common.client_errors import LEADERSHIP_LOST, client_error
from headwater_broker.coordinator.common.hosted_shard import HostedShard
from headwater_broker.coordinator.common.shard import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Decision,
    S,
)
from headwater_broker.coordinator.common.turn_batches import batch_of
from headwater_broker.log.results import AppendOrigin
from headwater_broker.replica.partition import ACKS_ALL

UNKNOWN_OUTCOME = LEADERSHIP_LOST | {ErrorCode.KAFKA_STORAGE_ERROR}
"""After these errors the shard is dropped, or loaded again; any other one leaves the log as it is.
"""

NO_PRODUCER = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

logger = logging.getLogger(__name__)


class LoneAppends(Generic[S]):
    """Appends decisions to logs whose only replica is here."""

    def __init__(
        self,
        committed: Callable[[HostedShard[S], int], None],
        failed: Callable[[HostedShard[S], KafkaError, int], None],
        reload: Callable[[HostedShard[S], str], None],
    ) -> None:
        """`committed(shard, high watermark)`: what was replayed is committed. `failed(shard, error,
        offset)`: what may be in the log from `offset` on is not replayed. `reload(shard, reason)`.
        """
        self._committed = committed
        self._failed = failed
        self._reload = reload

    def perform(
        self, hosted: HostedShard[S], log: LoneLog, decision: Decision, now_ms: int
    ) -> bool:
        """Append, replay, reply. False: nothing is done, as the log rejects the batch."""
        batch = batch_of(decision, now_ms)
        replies = decision.confirmations
        if decision.replies:
            replies = replies + decision.replies
        try:
            first = log.append(
                memoryview(batch), ACKS_ALL, now_ms, AppendOrigin.COORDINATOR
            ).base_offset
        except KafkaError as error:
            if error.code not in UNKNOWN_OUTCOME:
                return False
            answer = client_error(error)
            hosted.give([(token, answer) for token, _ in replies])
            self._failed(hosted, error, hosted.last_replayed + 1)
            return True
        offset, replay = first, hosted.shard.replay
        producer_id, producer_epoch = decision.producer or NO_PRODUCER
        try:
            for offset, (key, value) in enumerate(decision.records, first):
                replay(offset, producer_id, producer_epoch, key, value)
        except Exception:
            logger.exception("%s: a replay failed", hosted.name)
            self._reload(hosted, "a replay failed")
            return True
        hosted.last_replayed = offset
        hosted.give(replies)
        self._committed(hosted, offset + 1)
        return True
