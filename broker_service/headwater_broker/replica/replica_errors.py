"""Errors of a replica: each names the request and the state that it met."""

from __future__ import annotations

from typing import Protocol

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.unified_log import UnifiedLog


class Replica(Protocol):
    """The attributes of a `Partition` that errors name."""

    topic: str
    partition: int
    log: UnifiedLog
    leader_id: int
    leader_epoch: int
    is_leader: bool
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    min_insync_replicas: int
    storage_error: bool
    offline_reason: str
    awaits_tiered_end: bool


def _error(partition: Replica, code: ErrorCode, detail: str) -> KafkaError:
    return KafkaError(code, f"{partition.topic}-{partition.partition}: {detail}")


def not_leader(partition: Replica, broker_id: int) -> KafkaError:
    """A request for the leader met a replica that does not lead."""
    if partition.storage_error:
        return _error(partition, ErrorCode.KAFKA_STORAGE_ERROR, partition.offline_reason)
    if partition.offline_reason:
        return _error(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, partition.offline_reason)
    return _error(
        partition,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"the leader is broker {partition.leader_id} in epoch {partition.leader_epoch}, "
        f"this is broker {broker_id}",
    )


def cannot_commit(partition: Replica) -> KafkaError:
    """acks=all, or any append to a leader that does not know the end of its table yet."""
    if partition.awaits_tiered_end:
        return _error(
            partition,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "the leader waits until it knows where its Delta table ends",
        )
    return _error(
        partition,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"the ISR {list(partition.isr)} is smaller than "
        f"min.insync.replicas={partition.min_insync_replicas}",
    )


def wrong_leader_epoch(partition: Replica, epoch: int) -> KafkaError:
    """The sender knows another leader epoch (KIP-320)."""
    own = partition.leader_epoch
    code = ErrorCode.FENCED_LEADER_EPOCH if epoch < own else ErrorCode.UNKNOWN_LEADER_EPOCH
    return _error(partition, code, f"the request is for leader epoch {epoch}, here it is {own}")


def out_of_range(partition: Replica, offset: int) -> KafkaError:
    """The offset is outside the log."""
    log = partition.log
    return _error(
        partition,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is not within [{log.log_start_offset}, {log.log_end_offset}]",
    )


def below_local_start(partition: Replica, offset: int) -> KafkaError:
    """A follower fetched an offset that only the Delta table holds; followers do not read there."""
    log = partition.log
    if offset < log.log_start_offset:
        return out_of_range(partition, offset)
    return _error(
        partition,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        f"offset {offset} is only in the Delta table; the local log starts at "
        f"{log.local_log_start_offset}",
    )


def unknown_epoch(partition: Replica, last_fetched_epoch: int) -> KafkaError:
    """No leader epoch is left here to compare the fetcher's log with."""
    return _error(
        partition,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"nothing is left of leader epoch {last_fetched_epoch} or of any before it",
    )


def unknown_replica(partition: Replica, broker_id: int, replica_id: int) -> KafkaError:
    """A fetch by a broker without a replica, or sent to a broker that is not the leader."""
    if not partition.is_leader:
        return not_leader(partition, broker_id)
    return _error(
        partition,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"broker {replica_id} is not among the replicas {list(partition.replicas)} "
        f"of leader epoch {partition.leader_epoch}",
    )


def stale_broker_epoch(partition: Replica, replica_id: int, epoch: int, known: int) -> KafkaError:
    """A fetch from before that broker's restart (KIP-903)."""
    return _error(
        partition,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"broker {replica_id} fetched with broker epoch {epoch}, but {known} was seen already",
    )
