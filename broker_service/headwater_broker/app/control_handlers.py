"""The control requests that this broker serves, each with the part that handles it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.control import ControlHandler
from headwater.wire.control import (
    Control,
    DrainReply,
    DrainRequest,
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    OffsetAtBytesItem,
    OffsetAtBytesReply,
    OffsetAtBytesRequest,
    ReplicaStateReply,
    ReplicaStateRequest,
    StatusReply,
    StatusRequest,
    StopReplicaReply,
    StopReplicaRequest,
    TierHintReply,
    TierHintRequest,
    UpdateMetadataRequest,
)
from headwater_broker.app.tiered_offsets import TieredOffsets
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.combined_update import split
from headwater_broker.replica.manager import ReplicaManager


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlParts:
    """The parts that handle control requests."""

    broker_id: int
    view: MetadataCache
    replicas: ReplicaManager
    tiered: TieredOffsets
    status: Callable[[], Awaitable[str]]
    is_ready: Callable[[], bool]
    stop: Callable[[str], None]


class ControlHandlers:
    """Handlers of control requests; they run on the broker's loop."""

    def __init__(self, parts: ControlParts) -> None:
        self._parts = parts

    def table(self) -> dict[type[Control], ControlHandler]:
        """The handlers by request class, for `network.control_grpc.ControlServer`."""
        rows: dict[type[Control], Callable[[Any], Awaitable[Control]]] = {
            LeaderAndIsrRequest: self._leader_and_isr,
            StopReplicaRequest: self._stop_replica,
            UpdateMetadataRequest: self._parts.view.handle,
            ReplicaStateRequest: self._replica_state,
            OffsetAtBytesRequest: self._offset_at_bytes,
            TierHintRequest: self._tier_hint,
            StatusRequest: self._status,
            DrainRequest: self._drain,
        }
        return {key: cast(ControlHandler, handler) for key, handler in rows.items()}

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        """Replicas before metadata, so that a leader knows its role before clients do."""
        reply = await self._parts.replicas.handle_leader_and_isr(request)
        metadata = split(request)
        if metadata is None or reply.error_code != ErrorCode.NONE:
            return reply
        return replace(reply, metadata_error_code=self._parts.view.apply(metadata))

    async def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaReply:
        return await self._parts.replicas.handle_stop_replica(request)

    async def _replica_state(self, request: ReplicaStateRequest) -> ReplicaStateReply:
        return self._parts.replicas.replica_state(request)

    async def _offset_at_bytes(self, request: OffsetAtBytesRequest) -> OffsetAtBytesReply:
        try:
            items = tuple(self._end_at_bytes(item) for item in request.items)
        except KafkaError as error:
            return OffsetAtBytesReply(error_code=error.code)
        return OffsetAtBytesReply(error_code=ErrorCode.NONE, items=items)

    def _end_at_bytes(self, item: OffsetAtBytesItem) -> OffsetAtBytesItem:
        partition = self._parts.replicas.leader(item.topic, item.partition)
        end = partition.log.offset_at_bytes(item.start_offset, item.max_bytes)
        return replace(item, end_offset=min(end, partition.last_stable_offset))

    async def _tier_hint(self, request: TierHintRequest) -> TierHintReply:
        known = self._parts.view.topic_by_id.get(request.topic_id)
        if known is None:
            return TierHintReply(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        is_read = await self._parts.tiered.refresh_topic(known.name, known.topic_id)
        code = ErrorCode.NONE if is_read else ErrorCode.KAFKA_STORAGE_ERROR
        return TierHintReply(error_code=code)

    async def _status(self, _request: StatusRequest) -> StatusReply:
        return StatusReply(
            ready=self._parts.is_ready(),
            broker_id=self._parts.broker_id,
            document=await self._parts.status(),
        )

    async def _drain(self, request: DrainRequest) -> DrainReply:
        self._parts.stop(f"drain request ({request.grace_ms} ms)")
        return DrainReply(error_code=ErrorCode.NONE)
