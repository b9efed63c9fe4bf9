"""The topics and rows of a request that commits offsets: OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k08_offset_commit import OffsetCommitRequestPartition
from headwater.wire.apis.k28_txn_offset_commit import TxnOffsetCommitRequestPartition
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import topic_name
from headwater_broker.coordinator.group.offsets import Commit

OffsetRow = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


def check_topic(
    ctx: RequestContext, name: str, topic_id: UUID, names_by_id_since: int
) -> tuple[str, ErrorCode]:
    """The topic's name, "" while that is not known, and the code of all of its rows."""
    try:
        name = topic_name(ctx, name, topic_id, names_by_id_since)
    except KafkaError as error:
        return "", error.code
    if not ctx.allowed(Operation.READ, ResourceType.TOPIC, name):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name not in ctx.broker.view.topics:
        return name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return name, ErrorCode.NONE


def commits(ctx: RequestContext, name: str, rows: Iterable[OffsetRow]) -> list[Commit]:
    """The rows of partitions that exist."""
    return [
        Commit(
            name,
            row.partition_index,
            row.committed_offset,
            row.committed_leader_epoch,
            row.committed_metadata or "",
        )
        for row in rows
        if ctx.broker.view.partition(name, row.partition_index) is not None
    ]
