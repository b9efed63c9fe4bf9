"""The coordinators of epoch transactions on this broker, as the API handlers use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k10006_describe_sinks import DescribedSink
from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater.wire.sink_names import TICKETS_KEY, sink_key
from headwater_broker.coordinator.common.service import CoordinatorService
from headwater_broker.coordinator.common.shard import Command, Decision
from headwater_broker.coordinator.transaction import sink_administration
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.epoch_values import (
    EpochReply,
    EpochRequest,
    JoinRequest,
    NamedParticipant,
    TakenOver,
    check_sink,
)
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.sink_table import SinkTable

HEARTBEATS_PER_TIMEOUT = 5


class SinkService:
    """Runs each request on the shard of its sink. All methods raise KafkaError: NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, and their own; what is said about an
    epoch is the reply's status.
    """

    def __init__(
        self,
        coordinator: CoordinatorService[TransactionShard],
        config: TransactionConfig,
        producer_ids: ProducerIds,
    ) -> None:
        self._coordinator = coordinator
        self._ids = producer_ids
        self.heartbeat_interval_ms = config.epoch_timeout_ms // HEARTBEATS_PER_TIMEOUT
        self.replies: Counter[tuple[str, EpochStatus]] = Counter()
        """How often a request (by name) was answered with a status; for metrics."""

    async def _run(
        self, name: str, of: EpochRequest, command: Command[TransactionShard]
    ) -> EpochReply:
        check_epoch(of)
        reply = cast(EpochReply, await self._coordinator.run(sink_key(of.sink), command))
        self.replies[name, reply.status] += 1
        return reply

    async def allocate_ticket(self) -> int:
        """A ticket that is higher than every one before."""
        reply = await self._coordinator.run(
            TICKETS_KEY, lambda s, _now, t: s.epochs.tickets.allocate(t)
        )
        return cast(int, reply)

    async def join_epoch(self, request: JoinRequest) -> EpochReply:
        """A task becomes a participant, with a producer of its own."""
        check_epoch(request.of)
        try:
            fresh = await self._ids.fresh()
        except KafkaError as error:  # no controller allocates ids now
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail) from error
        asked = request._replace(fresh_producer_id=fresh)
        reply = await self._run("join", request.of, lambda s, now, t: s.epochs.join(asked, now, t))
        # After an error the outcome may be unknown: the id is not used again.
        if reply.participant is None or reply.participant.producer_id != fresh:
            self._ids.give_back(fresh)
        return reply

    async def commit_epoch(
        self, of: EpochRequest, participants: Sequence[NamedParticipant], *, is_prepared: bool
    ) -> EpochReply:
        """Commit an epoch with these participants, or one that was prepared. Also raises
        RESOURCE_NOT_FOUND: the sink, and with it the epoch's outcome, is not known."""
        if is_prepared:
            return await self._resolve("commit", of, EpochState.COMMITTING)
        return await self._decide("commit", of, participants, EpochState.COMMITTING)

    async def prepare_epoch(
        self, of: EpochRequest, participants: Sequence[NamedParticipant]
    ) -> EpochReply:
        """Make an epoch durable that is committed or aborted later, without a timeout."""
        return await self._decide("prepare", of, participants, EpochState.PREPARED)

    async def abort_epoch(self, of: EpochRequest, *, is_prepared: bool) -> EpochReply:
        """Abort an epoch; `is_prepared`: one that was prepared."""
        if is_prepared:
            return await self._resolve("abort", of, EpochState.ABORTING)
        return await self._run("abort", of, lambda s, now, t: s.epochs.abort(of, now, t))

    async def heartbeat(self, of: EpochRequest) -> EpochReply:
        """The tasks of an epoch are alive."""
        return await self._run("heartbeat", of, lambda s, now, t: s.epochs.heartbeat(of, now, t))

    async def _decide(
        self,
        name: str,
        of: EpochRequest,
        participants: Sequence[NamedParticipant],
        state: EpochState,
    ) -> EpochReply:
        return await self._run(
            name, of, lambda s, now, t: s.epochs.decide(of, participants, state, now, t)
        )

    async def _resolve(self, name: str, of: EpochRequest, state: EpochState) -> EpochReply:
        return await self._run(name, of, lambda s, now, t: s.epochs.resolve(of, state, now, t))

    # -- administration

    async def described(self, sink: str) -> DescribedSink | None:
        """None: it is not known. A coordinator that was deposed does not answer: `exactly_once`
        holds what its table has against what is said here."""
        check_sink(sink)
        reply = await self._coordinator.run(
            sink_key(sink),
            lambda s, _now, t: Decision().reply_as_leader(
                t, sink_administration.described(s.epochs, (sink,))
            ),
        )
        found = cast(list[DescribedSink], reply)
        return found[0] if found else None

    def tables(self) -> list[SinkTable]:
        """The sinks and epochs of each shard here, to be read only."""
        return [shard.epochs.table for shard in self._coordinator.runtime.shards]

    async def listed(self) -> list[DescribedSink]:
        """Every sink of the shards here. Raises COORDINATOR_LOAD_IN_PROGRESS, as a part of the list
        would look like all of it."""
        if self._coordinator.lacks_shards:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "sinks are being loaded")
        replies = await self._coordinator.run_on_all(
            lambda s, _now, t: Decision().reply(t, sink_administration.described(s.epochs, None))
        )
        return [row for reply in replies for row in cast(list[DescribedSink], reply)]

    async def delete(self, sink: str) -> None:
        """Also raises RESOURCE_NOT_FOUND, INVALID_REQUEST."""
        check_sink(sink)
        await self._coordinator.run(
            sink_key(sink), lambda s, now, t: sink_administration.delete(s.epochs, sink, now, t)
        )

    async def take_over(self, sink: str, owner: str, last_epoch: int) -> TakenOver:
        """The state before. Also raises RESOURCE_NOT_FOUND, INVALID_REQUEST."""
        check_sink(sink)
        reply = await self._coordinator.run(
            sink_key(sink),
            lambda s, now, t: sink_administration.take_over(
                s.epochs, sink, owner, last_epoch, now, t
            ),
        )
        return cast(TakenOver, reply)


def check_epoch(of: EpochRequest) -> None:
    """Raises INVALID_REQUEST."""
    check_sink(of.sink)
    for what, is_wrong in (
        ("the owner is empty", not of.owner),
        (f"ticket {of.ticket}", of.ticket < 0),
        (f"epoch {of.epoch}", of.epoch < 0),
    ):
        if is_wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"sink {of.sink!r}: {what}")
