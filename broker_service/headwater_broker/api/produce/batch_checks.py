"""Rejected batches of a Produce request: their errors, and the batches that follow them."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.records.batch import codec_of
from headwater.topic_names import INTERNAL_TOPICS
from headwater_broker.api.produce.response_codec import Row
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.rejected_batches import RejectedBatches, is_new_here
from headwater_broker.log.log_validator import RecordValidationError
from headwater_broker.replica.partition import Partition

ZSTD_SINCE = 7
ZSTD = 4

_WRITE = Operation.WRITE
_TOPIC = ResourceType.TOPIC


def reject(
    peer: Peer, row: Row, partition: Partition, error: KafkaError, batch: memoryview, now_ms: int
) -> None:
    """Set the error of a batch that the partition has rejected."""
    row.leader_epoch = partition.leader_epoch
    row.fail(error.code, error.detail)
    if isinstance(error, RecordValidationError):
        row.record_errors = error.record_errors
    peer.services.meters.rejected(row.name, len(batch))
    _check_former_leader(peer, row, partition, batch, now_ms)


def rejection_of(
    peer: Peer, row: Row, partition: Partition | None, view: memoryview, start: int, version: int
) -> tuple[ErrorCode, str] | None:
    """The error of the batch at `start` of the view, if it must not reach the log; else None."""
    if (
        partition is None
        or start < 0
        or row.name in INTERNAL_TOPICS
        or (version < ZSTD_SINCE and codec_of(view, start) == ZSTD)
        or not peer.session.allows(_WRITE, _TOPIC, row.name)
    ):
        return rejection(peer, row, partition, start)
    return None


def rejection(
    peer: Peer, row: Row, partition: Partition | None, start: int
) -> tuple[ErrorCode, str]:
    """The error of a batch to which a condition of `rejection_of` applies."""
    services, name, index = peer.services, row.name, row.index
    if isinstance(row.key, bytes) and not name:
        return ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {row.key.hex()} is not known here"
    if not peer.session.allows(_WRITE, _TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no WRITE on topic {name}"
    if partition is None:
        error = services.absent(name, index)
        return error.code, error.detail
    if name in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by coordinators only"
    if start < 0:
        return ErrorCode.INVALID_RECORD, "no records (null)"
    return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later"


def _check_former_leader(
    peer: Peer, row: Row, partition: Partition, batch: memoryview, now_ms: int
) -> None:
    """Answer NOT_LEADER_OR_FOLLOWER for a batch out of order that may follow a batch in flight to
    the former leader."""
    role, now_s = partition.leader_state, peer.services.clock.monotonic()
    if (
        row.is_out_of_order
        and role is not None
        and is_new_here(role, batch, partition.log.producers, now_s)
    ):
        why = f"{row.message}; the former leader may have what is missing"
        row.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
    remember_rejected(peer, row, batch, now_ms)


def remember_rejected(peer: Peer, row: Row, batch: memoryview, now_ms: int) -> None:
    """Remember a rejected batch that the client will send again (`rejected_batches`)."""
    if row.code is not None and row.code.retriable:
        rejected = peer.rejected or RejectedBatches()
        rejected.note(row.key, row.index, batch, row.code, now_ms)
        peer.rejected = rejected if rejected else None


def check_predecessor(
    peer: Peer,
    key: str | bytes,
    index: int,
    batch: memoryview,
    partition: Partition,
    now_ms: int,
) -> None:
    """Reject a batch that follows a rejected one. Raises KafkaError."""
    if peer.rejected:
        code = peer.rejected.before(key, index, batch, partition.log.producers, now_ms)
        if code is not None:
            raise KafkaError(
                code, f"{partition!r}: a batch before it was rejected, send both again"
            )
    if not peer.rejected:
        peer.rejected = None
