"""Admin calls about replicas: elections, reassignments and log dirs, on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from headwater.client.cluster import Cluster
from headwater.client.errors import error_code, kafka_error
from headwater.client.values import (
    LogDirDescription,
    PartitionReassignment,
    ReplicaInfo,
    TopicPartition,
)
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from headwater.wire.apis.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from headwater.wire.apis.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from headwater.wire.apis.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from headwater.wire.apis.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

ELECTION_TYPES = {"preferred": 0, "unclean": 1}

Outcomes = dict[TopicPartition, KafkaError | None]


class ReplicaCalls:
    """Each method is one admin call, with retries; each partition has an outcome of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def elect_leaders(
        self, election_type: str, partitions: Iterable[TopicPartition] | None, timeout_ms: int
    ) -> Outcomes:
        """ElectLeaders at the controller."""
        named = None
        if partitions is not None:
            named = tuple(
                TopicPartitions(topic=topic, partitions=tuple(indexes))
                for topic, indexes in _by_topic(partitions).items()
            )
        request = ElectLeadersRequest(
            election_type=ELECTION_TYPES[election_type],
            topic_partitions=named,
            timeout_ms=timeout_ms,
        )

        async def attempt() -> Outcomes:
            node = await self._cluster.controller_node()
            reply = await self._cluster.call(node, request, ElectLeadersResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, "elect leaders")
            return {
                TopicPartition(t.topic, p.partition_id): _outcome(p.error_code, p.error_message)
                for t in reply.replica_election_results
                for p in t.partition_result
            }

        return await self._cluster.retrying("elect leaders", attempt)

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, list[int] | None],
        timeout_ms: int,
        *,
        allow_replication_factor_change: bool,
    ) -> Outcomes:
        """AlterPartitionReassignments at the controller; None cancels a reassignment."""
        by_topic: dict[str, list[ReassignablePartition]] = {}
        for (topic, index), replicas in targets.items():
            wanted = None if replicas is None else tuple(replicas)
            row = ReassignablePartition(partition_index=index, replicas=wanted)
            by_topic.setdefault(topic, []).append(row)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=tuple(
                ReassignableTopic(name=topic, partitions=tuple(rows))
                for topic, rows in by_topic.items()
            ),
        )

        async def attempt() -> Outcomes:
            node = await self._cluster.controller_node()
            reply = await self._cluster.call(node, request, AlterPartitionReassignmentsResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, reply.error_message or "reassign")
            return {
                TopicPartition(t.name, p.partition_index): _outcome(p.error_code, p.error_message)
                for t in reply.responses
                for p in t.partitions
            }

        return await self._cluster.retrying("reassign partitions", attempt)

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None, timeout_ms: int
    ) -> dict[TopicPartition, PartitionReassignment]:
        """ListPartitionReassignments at the controller."""
        asked = None
        if partitions is not None:
            asked = tuple(
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(indexes))
                for topic, indexes in _by_topic(partitions).items()
            )
        request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=asked)

        async def attempt() -> dict[TopicPartition, PartitionReassignment]:
            node = await self._cluster.controller_node()
            reply = await self._cluster.call(node, request, ListPartitionReassignmentsResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, reply.error_message or "list reassignments")
            return {
                TopicPartition(t.name, p.partition_index): PartitionReassignment(
                    p.replicas, p.adding_replicas, p.removing_replicas
                )
                for t in reply.topics
                for p in t.partitions
            }

        return await self._cluster.retrying("list reassignments", attempt, timeout_ms)

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None
    ) -> dict[int, list[LogDirDescription]]:
        """DescribeLogDirs at each broker."""

        async def one(node: int) -> list[LogDirDescription]:
            async def attempt() -> list[LogDirDescription]:
                request = DescribeLogDirsRequest(topics=None)
                reply = await self._cluster.call(node, request, DescribeLogDirsResponse)
                if reply.error_code:
                    raise kafka_error(reply.error_code, f"log dirs of broker {node}")
                return [_log_dir(row) for row in reply.results]

            return await self._cluster.retrying(f"log dirs of broker {node}", attempt)

        await self._cluster.refresh(())
        nodes = sorted(self._cluster.cache.brokers if brokers is None else set(brokers))
        answers = await asyncio.gather(*(one(node) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def alter_log_dirs(self, node: int, targets: Mapping[TopicPartition, str]) -> Outcomes:
        """AlterReplicaLogDirs at the broker."""
        by_path: dict[str, list[TopicPartition]] = {}
        for tp, path in targets.items():
            by_path.setdefault(path, []).append(tp)
        request = AlterReplicaLogDirsRequest(
            dirs=tuple(
                AlterReplicaLogDir(
                    path=path,
                    topics=tuple(
                        AlterReplicaLogDirTopic(name=topic, partitions=tuple(indexes))
                        for topic, indexes in _by_topic(partitions).items()
                    ),
                )
                for path, partitions in by_path.items()
            )
        )

        async def attempt() -> Outcomes:
            reply = await self._cluster.call(node, request, AlterReplicaLogDirsResponse)
            return {
                TopicPartition(t.topic_name, p.partition_index): _outcome(p.error_code, None)
                for t in reply.results
                for p in t.partitions
            }

        return await self._cluster.retrying(f"move between log dirs of broker {node}", attempt)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def _outcome(code: int, text: str | None) -> KafkaError | None:
    return kafka_error(code, text or error_code(code).name) if code else None


def _log_dir(row: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        row.log_dir,
        None if row.error_code == ErrorCode.NONE else error_code(row.error_code).name,
        row.total_bytes,
        row.usable_bytes,
        {
            TopicPartition(t.name, p.partition_index): ReplicaInfo(
                p.partition_size, p.offset_lag, p.is_future_key
            )
            for t in row.topics
            for p in t.partitions
        },
    )
