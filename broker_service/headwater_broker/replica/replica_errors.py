"""The errors of a hosted replica: what was asked, what state it met."""

from __future__ import annotations

from typing import Protocol

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.unified_log import UnifiedLog


class Replica(Protocol):
    """What a story is told about: a `Partition`."""

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


def _error(partition: Replica, code: ErrorCode, story: str) -> KafkaError:
    return KafkaError(code, f"{partition.topic}-{partition.partition}: {story}")


def not_leader(partition: Replica, broker_id: int) -> KafkaError:
    """Asked something that only the leader may answer."""
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


def not_enough_replicas(partition: Replica) -> KafkaError:
    """acks=all met an ISR that is too small; nothing was written."""
    return _error(
        partition,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"the ISR {list(partition.isr)} is smaller than "
        f"min.insync.replicas={partition.min_insync_replicas}",
    )


def held(partition: Replica) -> KafkaError:
    """A new leader without the others: where its table ends is not known yet. Soon it is."""
    return _error(
        partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, "waits to learn where its Delta table ends"
    )


def other_epoch(partition: Replica, told: int) -> KafkaError:
    """The sender knows another leader epoch (KIP-320)."""
    own = partition.leader_epoch
    code = ErrorCode.FENCED_LEADER_EPOCH if told < own else ErrorCode.UNKNOWN_LEADER_EPOCH
    return _error(partition, code, f"asked for leader epoch {told}, which here is {own}")


def out_of_range(partition: Replica, offset: int) -> KafkaError:
    """No such offset here."""
    log = partition.log
    return _error(
        partition,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is not within [{log.log_start_offset}, {log.log_end_offset}]",
    )


def below_local_start(partition: Replica, offset: int) -> KafkaError:
    """A follower asked for what only the table holds: it must not be served from there."""
    log = partition.log
    if offset < log.log_start_offset:
        return out_of_range(partition, offset)
    return _error(
        partition,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        f"offset {offset} is only in the table; the local log starts at "
        f"{log.local_log_start_offset}",
    )


def epochs_gone(partition: Replica, last_fetched_epoch: int) -> KafkaError:
    """Nothing here can tell where the fetcher's log parted from this one."""
    return _error(
        partition,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"nothing is left of leader epoch {last_fetched_epoch} or of any before it",
    )


def unknown_replica(partition: Replica, broker_id: int, replica_id: int) -> KafkaError:
    """A fetch by a broker that is no replica, or at a broker that is not the leader."""
    if not partition.is_leader:
        return not_leader(partition, broker_id)
    return _error(
        partition,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"broker {replica_id} is not among the replicas {list(partition.replicas)} "
        f"of leader epoch {partition.leader_epoch}",
    )


def stale_broker_epoch(partition: Replica, replica_id: int, told: int, known: int) -> KafkaError:
    """A fetch from before that broker's restart (KIP-903)."""
    return _error(
        partition,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"broker {replica_id} fetched under broker epoch {told}, but {known} was seen already",
    )
