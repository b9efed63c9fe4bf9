"""The control requests that this broker serves, each with the part that handles it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from headwater.errors import ErrorCode
from headwater.ports.control import ControlHandler
from headwater.wire.control import (
    Control,
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    ReplicaStateReply,
    ReplicaStateRequest,
    StatusReply,
    StatusRequest,
    StopReplicaReply,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.combined_update import split
from headwater_broker.replica.replica_manager import ReplicaManager


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlParts:
    """The parts that handle control requests."""

    broker_id: int
    view: MetadataCache
    replicas: ReplicaManager
    status: Callable[[], Awaitable[str]]
    is_ready: Callable[[], bool]


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
            StatusRequest: self._status,
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

    async def _status(self, _request: StatusRequest) -> StatusReply:
        return StatusReply(
            ready=self._parts.is_ready(),
            broker_id=self._parts.broker_id,
            document=await self._parts.status(),
        )
