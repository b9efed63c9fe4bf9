"""AlterReplicaLogDirs: moves replicas of this broker to other data folders (KIP-113)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
async def alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Answered when each copy has begun; DescribeLogDirs has its progress."""
    is_allowed = may_on_cluster(ctx, Operation.ALTER)
    found: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            rows = found.setdefault(topic.name, [])
            for partition in topic.partitions:
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if is_allowed:
                    code = await _alter(ctx, topic.name, partition, folder.path)
                rows.append(
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                )
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(rows))
            for name, rows in found.items()
        )
    )


async def _alter(ctx: RequestContext, topic: str, partition: int, path: str) -> ErrorCode:
    """As in Kafka, UNKNOWN_TOPIC_OR_PARTITION for a partition that the cluster does not have, and
    REPLICA_NOT_AVAILABLE for one that this broker does not have (yet)."""
    try:
        await ctx.broker.alter_log_dirs.alter(topic, partition, path)
    except KafkaError as error:
        is_known = ctx.broker.view.partition(topic, partition) is not None
        if error.code is ErrorCode.REPLICA_NOT_AVAILABLE and not is_known:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error.code
    return ErrorCode.NONE
