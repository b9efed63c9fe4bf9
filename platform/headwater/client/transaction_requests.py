"""The requests of a transactional producer: built, sent on a connection, responses to errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.client.cluster import Cluster
from headwater.client.connection import Connection
from headwater.client.core.transaction_states import (
    Partition,
    Request,
    TransactionState,
    Verdict,
    verdict,
)
from headwater.client.errors import kafka_error
from headwater.client.producer_options import ProducerOptions
from headwater.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.apis.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headwater.wire.apis.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headwater.wire.primitives import INT32_MAX

V1_ADD_PARTITIONS_VERSION = 3
"""Later versions of AddPartitionsToTxn are for brokers."""
EPOCH_INIT_VERSION = 3
"""From this InitProducerId on a producer can ask for its next epoch (KIP-360)."""
TWO_PHASE_INIT_VERSION = 6
V1_OFFSETS_VERSION, V2_OFFSETS_VERSION = 4, 5
"""The last TxnOffsetCommit of each transaction version that has topic names."""
GROUP_MEMBER_VERSION = 3
"""From this TxnOffsetCommit on the coordinator checks the group's member (KIP-447)."""
_SEVERITY = (
    Verdict.RETRY_SOON,
    Verdict.RETRY,
    Verdict.FIND_COORDINATOR,
    Verdict.ABORT,
    Verdict.FATAL,
)


async def init_producer_id(
    cluster: Cluster,
    connection: Connection,
    options: ProducerOptions,
    identity: tuple[int, int],
    *,
    keep_prepared: bool,
) -> InitProducerIdResponse:
    """Ask for a producer id and epoch, or for the next epoch of `identity`. Raises KafkaError."""
    version = connection.version_for(InitProducerIdRequest)
    two_phase = options.transaction_two_phase_commit_enable
    if (two_phase or keep_prepared) and version < TWO_PHASE_INIT_VERSION:
        raise kafka_error(
            ErrorCode.UNSUPPORTED_VERSION,
            f"two-phase commit needs InitProducerId {TWO_PHASE_INIT_VERSION} (KIP-939), the broker "
            f"serves {version}; prepare() works without transaction_two_phase_commit_enable",
        )
    if identity[0] >= 0 and version < EPOCH_INIT_VERSION:
        raise kafka_error(
            ErrorCode.UNSUPPORTED_VERSION,
            f"a new epoch needs InitProducerId {EPOCH_INIT_VERSION}, the broker serves {version}",
        )
    request = InitProducerIdRequest(
        transactional_id=options.transactional_id,
        transaction_timeout_ms=INT32_MAX if two_phase else options.transaction_timeout_ms,
        producer_id=identity[0],
        producer_epoch=identity[1],
        enable2_pc=two_phase,
        keep_prepared_txn=keep_prepared,
    )
    reply = await cluster.call_on(connection, request, InitProducerIdResponse, version=version)
    if reply.error_code:
        raise kafka_error(reply.error_code, "InitProducerId")
    return reply


def add_partitions_request(
    state: TransactionState, places: Iterable[Partition]
) -> AddPartitionsToTxnRequest:
    """AddPartitionsToTxn of version 3 or lower."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        by_topic.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=state.transactional_id,
        v3_and_below_producer_id=state.producer_id,
        v3_and_below_producer_epoch=state.producer_epoch,
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=name, partitions=tuple(rows))
            for name, rows in by_topic.items()
        ),
    )


def add_partitions_error(reply: AddPartitionsToTxnResponse) -> KafkaError | None:
    """The gravest error in a response, None without one."""
    rows = [
        (f"{topic.name}-{row.partition_index}", row.partition_error_code)
        for topic in reply.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]
    return _gravest(Request.ADD_PARTITIONS, rows)


async def commit_offsets(
    cluster: Cluster,
    connection: Connection,
    state: TransactionState,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
) -> None:
    """TxnOffsetCommit to the group's coordinator. Raises KafkaError."""
    highest = V2_OFFSETS_VERSION if state.is_v2 else V1_OFFSETS_VERSION
    version = connection.version_for(TxnOffsetCommitRequest, highest)
    has_member = version >= GROUP_MEMBER_VERSION
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for tp, entry in offsets.items():
        row = TxnOffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=entry.offset,
            committed_leader_epoch=entry.leader_epoch,
            committed_metadata=entry.metadata,
        )
        by_topic.setdefault(tp.topic, []).append(row)
    request = TxnOffsetCommitRequest(
        transactional_id=state.transactional_id,
        group_id=group.group_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        generation_id=group.generation_id if has_member else -1,
        member_id=group.member_id if has_member else "",
        group_instance_id=group.group_instance_id if has_member else None,
        topics=tuple(
            TxnOffsetCommitRequestTopic(name=name, partitions=tuple(rows))
            for name, rows in by_topic.items()
        ),
    )
    reply = await cluster.call_on(connection, request, TxnOffsetCommitResponse, version=version)
    rows = [
        (f"{topic.name}-{row.partition_index}", row.error_code)
        for topic in reply.topics
        for row in topic.partitions
    ]
    error = _gravest(Request.COMMIT_OFFSETS, rows)
    if error is not None:
        raise error


def _gravest(request: Request, rows: Iterable[tuple[str, int]]) -> KafkaError | None:
    """OPERATION_NOT_ATTEMPTED only follows from another row's error."""
    errors = [kafka_error(code, f"{request.value} of {name}") for name, code in rows if code]
    causes = [e for e in errors if e.code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return max(
        causes or errors, key=lambda e: _SEVERITY.index(verdict(request, e.code)), default=None
    )
