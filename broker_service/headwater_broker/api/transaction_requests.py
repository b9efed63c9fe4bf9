"""Shared by the handlers of transactions: rights, and error codes that old clients know."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.sink_names import coordinator_key, is_participant
from headwater_broker.api.context import RequestContext
from headwater_broker.api.raw_connection import Peer

FENCED_SINCE = 2
"""Clients of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn know PRODUCER_FENCED from this version
on (KIP-588)."""


def client_code(code: ErrorCode, version: int, fenced_since: int = FENCED_SINCE) -> ErrorCode:
    """The code that a client of this version understands.

    INVALID_PRODUCER_EPOCH for PRODUCER_FENCED before `fenced_since`. Never UNKNOWN_SERVER_ERROR,
    which franz-go takes as a success of EndTxn, nor REQUEST_TIMED_OUT (no producer ids), which is
    final to older Java clients.
    """
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def require_transactional_id(
    ctx: RequestContext, operation: Operation, transactional_id: str
) -> None:
    """Raises KafkaError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED). The rights on a participant of an
    epoch are those on its sink."""
    name = coordinator_key(transactional_id)
    if not ctx.allowed(operation, ResourceType.TRANSACTIONAL_ID, name):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"no {operation.name} on transactional id {transactional_id}",
        )


def has_own_id(peer: Peer, transactional_id: str) -> bool:
    """For `registry.AtOnce`: the right to write with this id is remembered, and it is no sink's.
    False says nothing: `require_transactional_id` and `check_transactional_id` decide."""
    return not is_participant(transactional_id) and peer.session.has_allowed(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )
