"""Proves that this broker leads a shard's partition, for replies that only the leader may give.

A broker that was paused or cut off may be deposed without knowing it. What it appends never
commits, so answers that follow an append are safe; an answer without one is not. Such replies wait
for the commit of a record that is appended after they were decided: the records of the same turn of
the loop, or else one `LEADERSHIP_PROOF` for all replies of the turn. While appends are rejected
(min.insync.replicas) the metadata store is asked instead, once for all that wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.records.builder import BatchBuilder
from headwater_broker.coordinator.common.appender import Appender
from headwater_broker.coordinator.common.client_errors import LEADERSHIP_LOST
from headwater_broker.coordinator.common.hosted_shard import HostedShard
from headwater_broker.coordinator.common.shard import LEADERSHIP_PROOF, S, Token

logger = logging.getLogger(__name__)

Replies = list[tuple[Token, object]]


class LeadershipProver(Generic[S]):
    """The replies that wait for a proof, of every shard of a runtime."""

    def __init__(
        self,
        appender: Appender,
        clock: Clock,
        answer: Callable[[HostedShard[S], Replies, int | None], None],
        release: Callable[[HostedShard[S]], None],
        drop: Callable[[HostedShard[S], str], None],
    ) -> None:
        """`answer`: let replies wait until an offset is committed; None: all that is replayed.
        `release`: give those whose offset is. `drop`: leadership ended.
        """
        self._appender = appender
        self._clock = clock
        self._answer = answer
        self._release = release
        self._drop = drop

    def add(self, hosted: HostedShard[S], replies: Replies) -> None:
        """Give these replies once this broker is known to lead now."""
        if not hosted.turn.is_empty:  # its records are appended at the end of this turn
            self._answer(hosted, replies, None)
            return
        hosted.leader_replies += replies
        if hosted.proof is None:
            hosted.proof = asyncio.get_running_loop().call_soon(self._prove, hosted)

    def _prove(self, hosted: HostedShard[S]) -> None:
        hosted.proof = None
        replies, hosted.leader_replies = hosted.leader_replies, []
        if not hosted.turn.is_empty:
            self._answer(hosted, replies, None)
            self._release(hosted)
            return
        partition, epoch = hosted.partition, hosted.epoch
        builder = BatchBuilder()
        builder.append(self._clock.now_ms(), LEADERSHIP_PROOF.key, LEADERSHIP_PROOF.value)
        try:
            self._appender.check_append(partition, epoch)
            at = self._appender.append(partition, epoch, memoryview(builder.build()))
        except KafkaError as error:
            if error.code in LEADERSHIP_LOST:
                self._drop(hosted, "leadership ended")
                return
            hosted.unproven += replies
            if hosted.proving is None:
                hosted.proving = asyncio.get_running_loop().create_task(self._look_up(hosted))
        else:
            self._answer(hosted, replies, at)
            self._release(hosted)

    async def _look_up(self, hosted: HostedShard[S]) -> None:
        """Ask the metadata store, again for what came while it was asked."""
        while hosted.unproven:
            replies, hosted.unproven = hosted.unproven, []
            try:
                leads = await self._appender.leads(hosted.partition, hosted.epoch)
            except Exception:
                logger.exception("%s: the look-up of its leader failed", hosted.name)
                leads = False
            if leads:
                self._answer(hosted, replies, None)
                self._release(hosted)
                continue
            for token, _ in replies:
                future = hosted.waiting.pop(token, None)
                if future is not None and not future.done():
                    future.set_exception(
                        KafkaError(
                            ErrorCode.COORDINATOR_NOT_AVAILABLE,
                            f"{hosted.name}: this broker cannot confirm that it leads",
                        )
                    )
        hosted.proving = None
