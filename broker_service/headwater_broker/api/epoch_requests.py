"""Shared by the handlers of epoch transactions: rights, and the request as its coordinator has it.

Their errors are Kafka's own, for clients to retry or to give up; all else is a status of the reply.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k10001_join_epoch import JoinEpochRequest
from headwater.wire.apis.k10002_commit_epoch import CommitEpochRequest, EpochParticipant
from headwater.wire.apis.k10003_abort_epoch import AbortEpochRequest
from headwater.wire.apis.k10004_prepare_epoch import PrepareEpochRequest
from headwater.wire.apis.k10005_epoch_heartbeat import EpochHeartbeatRequest
from headwater.wire.epoch_values import SinkKind
from headwater.wire.sink_names import sink_key
from headwater_broker.api.context import RequestContext
from headwater_broker.api.transaction_requests import require_transactional_id
from headwater_broker.coordinator.transaction.epoch_values import EpochRequest, NamedParticipant

EpochFields = (
    JoinEpochRequest
    | CommitEpochRequest
    | AbortEpochRequest
    | PrepareEpochRequest
    | EpochHeartbeatRequest
)


def may_allocate_tickets(ctx: RequestContext) -> bool:
    """WRITE on any transactional id: tickets belong to no sink."""
    return ctx.session.allows_any(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)


def require_sink(ctx: RequestContext, operation: Operation, sink: str) -> None:
    """Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the rights on a sink are those on the
    transactional id `__hw.<sink>`."""
    require_transactional_id(ctx, operation, sink_key(sink))


def epoch_request(
    ctx: RequestContext, fields: EpochFields, kind: int = SinkKind.QUERY
) -> EpochRequest:
    """The request, with WRITE on its sink. Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    INVALID_REQUEST."""
    require_sink(ctx, Operation.WRITE, fields.sink)
    try:
        known_kind = SinkKind(kind)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no kind {kind} of sinks") from None
    return EpochRequest(
        fields.sink, fields.owner, fields.run, fields.ticket, fields.epoch, known_kind
    )


def named_participants(rows: tuple[EpochParticipant, ...]) -> list[NamedParticipant]:
    """The participants that a request names."""
    return [
        NamedParticipant(row.task, row.slot, row.producer_id, row.producer_epoch) for row in rows
    ]
