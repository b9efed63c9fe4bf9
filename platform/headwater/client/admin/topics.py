"""Admin calls about topics, configurations and offsets: their requests, on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from headwater.client.cluster import Cluster
from headwater.client.core.metadata import metadata_request
from headwater.client.errors import (
    AuthorizationError,
    UnknownTopicOrPartitionError,
    error_code,
    kafka_error,
)
from headwater.client.values import (
    ClusterDescription,
    ConfigEntry,
    NewTopic,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.wire.apis.k03_metadata import MetadataResponse
from headwater.wire.apis.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headwater.wire.apis.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headwater.wire.apis.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headwater.wire.apis.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headwater.wire.apis.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")
RESOURCE_TYPES = {"topic": 2, "broker": 4, "group": 32}
CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
DEFAULT_CONFIG = 5
CONFIG_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}
CONFIG_SET = 0
CONFIG_DELETE = 1
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
NAMES_DELETE_VERSION = 5
NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""The controller's answer is final."""


def _raise_first(rows: list[tuple[str, int, str | None]]) -> None:
    failed = [(name, code, text) for name, code, text in rows if code]
    if failed:
        detail = "; ".join(
            f"{name}: {text or error_code(code).name}" for name, code, text in failed
        )
        raise kafka_error(failed[0][1], detail)


def _found(answer: T | KafkaError) -> T:
    """`answer`, or raise it if it is an error."""
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def _named(resource_type: str, name: str) -> str:
    return f"{resource_type} {name}" if name else f"all {resource_type}s"


class TopicCalls:
    """Each method is one admin call, with retries."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(self, topics: list[NewTopic], timeout_ms: int, *, validate_only: bool) -> None:
        """CreateTopics at the controller."""
        request = CreateTopicsRequest(
            topics=tuple(_creatable(t) for t in topics),
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> None:
            node = await self._cluster.controller_node()
            reply = await self._cluster.call(node, request, CreateTopicsResponse)
            _raise_first([(t.name, t.error_code, t.error_message) for t in reply.topics])

        await self._cluster.retrying("create topics", attempt)

    async def delete(self, topics: list[str], timeout_ms: int) -> dict[str, KafkaError | None]:
        """DeleteTopics at the controller; topic -> None or its error. Retriable errors of single
        topics are retried. Raises KafkaError if no topic has a result."""
        outcomes: dict[str, KafkaError | None] = {}
        late: set[str] = set()

        async def attempt() -> None:
            left = [name for name in topics if name not in outcomes]
            node = await self._cluster.controller_node()
            connection = await self._cluster.connection(node)
            by_state = connection.version_for(DeleteTopicsRequest) > NAMES_DELETE_VERSION
            request = DeleteTopicsRequest(
                topics=tuple(DeleteTopicState(name=n) for n in left) if by_state else (),
                topic_names=() if by_state else tuple(left),
                timeout_ms=timeout_ms,
            )
            reply = await self._cluster.call(node, request, DeleteTopicsResponse)
            apply_deleted(reply, outcomes, late)

        try:
            await self._cluster.retrying("delete topics", attempt)
        except KafkaError as error:
            if not outcomes:
                raise
            outcomes |= dict.fromkeys(set(topics) - outcomes.keys(), error)
        return outcomes

    async def describe(
        self, names: list[str] | None, *, patient: bool = True
    ) -> list[TopicDescription]:
        """Metadata of these topics, or of all topics."""

        async def attempt() -> list[TopicDescription] | KafkaError:
            await self._cluster.refresh(names)
            cache = self._cluster.cache
            found = list(cache.topics) if names is None else names
            for name in found:
                if cache.errors.get(name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise AuthorizationError(f"topic {name} may not be described")
                if name not in cache.topics:
                    error = UnknownTopicOrPartitionError(f"topic {name} does not exist")
                    return await self._final(error, name, patient=patient)
            return [cache.topics[name].describe() for name in found]

        if names is None:
            self._cluster.cache.topics.clear()
        return _found(await self._cluster.retrying("describe topics", attempt))

    async def _final(self, error: KafkaError, topic: str, *, patient: bool) -> KafkaError:
        """The error if it is final: no live broker knows the topic, which one would if it was
        created just now. Otherwise raise it, so that the call is retried."""
        if patient or not await self._is_unknown_everywhere(topic):
            raise error
        return error

    async def _is_unknown_everywhere(self, topic: str) -> bool:
        request = metadata_request([topic], auto_create=False)

        async def ask(node: int) -> ErrorCode:
            reply = await self._cluster.call(node, request, MetadataResponse)
            return error_code(reply.topics[0].error_code)

        try:
            answers = await asyncio.gather(*(ask(node) for node in self._cluster.cache.brokers))
        except (OSError, KafkaError):  # a broker that does not answer may know the topic
            return False
        return all(answer in NO_SUCH_TOPIC for answer in answers)

    async def create_partitions(
        self,
        counts: dict[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]],
        timeout_ms: int,
        *,
        validate_only: bool,
    ) -> None:
        """CreatePartitions at the controller."""
        rows = tuple(
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if name not in assignments
                else tuple(
                    CreatePartitionsAssignment(broker_ids=tuple(ids)) for ids in assignments[name]
                ),
            )
            for name, count in counts.items()
        )
        request = CreatePartitionsRequest(
            topics=rows, timeout_ms=timeout_ms, validate_only=validate_only
        )

        async def attempt() -> None:
            node = await self._cluster.controller_node()
            reply = await self._cluster.call(node, request, CreatePartitionsResponse)
            _raise_first([(r.name, r.error_code, r.error_message) for r in reply.results])

        await self._cluster.retrying("create partitions", attempt, fatal=NO_SUCH_TOPIC)

    async def _resource_node(self, resource_type: str, name: str) -> int:
        """The node to send a request about a resource to: the broker itself, else any."""
        if resource_type == "broker" and name:
            if not (name.isascii() and name.isdigit()):
                raise UsageError(f"{name!r} is no broker id: give a number, as in 1")
            await self._cluster.any_node()
            return int(name)
        return await self._cluster.any_node()

    async def _require_live(self, node: int) -> None:
        """Raises KafkaError(BROKER_NOT_AVAILABLE) if fresh metadata lacks the broker."""
        if node not in self._cluster.cache.brokers:
            await self._cluster.refresh(())
        running = self._cluster.cache.brokers
        if node not in running:
            text = f"no broker {node} runs; running are {sorted(running)}"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)

    async def describe_configs(
        self, resource_type: str, name: str, *, patient: bool = True
    ) -> dict[str, ConfigEntry]:
        """DescribeConfigs for one resource."""

        async def attempt() -> dict[str, ConfigEntry] | KafkaError:
            node = await self._resource_node(resource_type, name)
            await self._require_live(node)
            row = DescribeConfigsResource(
                resource_type=RESOURCE_TYPES[resource_type],
                resource_name=name,
                configuration_keys=None,
            )
            request = DescribeConfigsRequest(
                resources=(row,), include_synonyms=True, include_documentation=True
            )
            reply = await self._cluster.call(node, request, DescribeConfigsResponse)
            answer = reply.results[0]
            row_of = [(_named(resource_type, name), answer.error_code, answer.error_message)]
            try:
                _raise_first(row_of)
            except UnknownTopicOrPartitionError as error:
                return await self._final(error, name, patient=patient)
            return {
                c.name: ConfigEntry(
                    c.name,
                    c.value,
                    CONFIG_SOURCES.get(c.config_source, "UNKNOWN"),
                    c.config_source == DEFAULT_CONFIG,
                    c.read_only,
                    c.is_sensitive,
                    CONFIG_TYPES.get(c.config_type, "unknown"),
                    c.documentation,
                    next((s.value for s in c.synonyms if s.source == DEFAULT_CONFIG), None),
                )
                for c in answer.configs
            }

        gone = frozenset({ErrorCode.BROKER_NOT_AVAILABLE})
        return _found(await self._cluster.retrying("describe configs", attempt, fatal=gone))

    async def alter_configs(
        self,
        resource_type: str,
        name: str,
        settings: dict[str, str | None],
        *,
        validate_only: bool,
    ) -> None:
        """IncrementalAlterConfigs for one resource."""

        async def attempt() -> None:
            node = await self._resource_node(resource_type, name)
            if node not in self._cluster.cache.brokers:  # it may be down
                node = await self._cluster.any_node()
            rows = tuple(
                AlterableConfig(
                    name=key,
                    config_operation=CONFIG_DELETE if value is None else CONFIG_SET,
                    value=value,
                )
                for key, value in settings.items()
            )
            resource = AlterConfigsResource(
                resource_type=RESOURCE_TYPES[resource_type], resource_name=name, configs=rows
            )
            request = IncrementalAlterConfigsRequest(
                resources=(resource,), validate_only=validate_only
            )
            reply = await self._cluster.call(node, request, IncrementalAlterConfigsResponse)
            answer = reply.responses[0]
            _raise_first([(_named(resource_type, name), answer.error_code, answer.error_message)])

        await self._cluster.retrying("alter configs", attempt, fatal=NO_SUCH_TOPIC)

    async def list_offsets(
        self, wanted: dict[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """ListOffsets of each partition's leader, in parallel; `isolation` as on the wire."""

        async def one(tp: TopicPartition, timestamp: int) -> OffsetAndTimestamp:
            async def attempt() -> OffsetAndTimestamp:
                return await list_one_offset(self._cluster, tp, timestamp, isolation)

            return await self._cluster.retrying(
                f"offsets of {tp.topic}-{tp.partition}", attempt, topics=(tp.topic,)
            )

        answers = await asyncio.gather(*(one(tp, ts) for tp, ts in wanted.items()))
        return dict(zip(wanted, answers, strict=True))

    async def delete_records(
        self, before: dict[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        """DeleteRecords at each partition's leader."""

        async def one(tp: TopicPartition, offset: int) -> int:
            async def attempt() -> int:
                node = await self._cluster.leader(*tp)
                row = DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
                request = DeleteRecordsRequest(
                    topics=(DeleteRecordsTopic(name=tp.topic, partitions=(row,)),),
                    timeout_ms=timeout_ms,
                )
                reply = await self._cluster.call(node, request, DeleteRecordsResponse)
                answer = reply.topics[0].partitions[0]
                _raise_first([(f"{tp.topic}-{tp.partition}", answer.error_code, None)])
                return answer.low_watermark

            return await self._cluster.retrying("delete records", attempt, topics=(tp.topic,))

        answers = await asyncio.gather(*(one(tp, offset) for tp, offset in before.items()))
        return dict(zip(before, answers, strict=True))

    async def describe_cluster(self) -> ClusterDescription:
        """From fresh metadata: every broker version supports it."""

        async def attempt() -> ClusterDescription:
            await self._cluster.refresh(())
            return self._cluster.cache.describe_cluster()

        return await self._cluster.retrying("describe cluster", attempt)


def apply_deleted(
    reply: DeleteTopicsResponse, outcomes: dict[str, KafkaError | None], late: set[str]
) -> None:
    """Enter each topic's result in `outcomes`. Raises a retriable error of one, for a retry: it is
    entered in `late`, and counts as deleted if it is unknown then."""
    again: KafkaError | None = None
    for row in reply.responses:
        name, code = row.name or str(row.topic_id), error_code(row.error_code)
        is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        why = row.error_message or ("it does not exist" if is_unknown else code.name)
        error = kafka_error(code, f"{name}: {why}") if code else None
        if error is not None and code.retriable and not is_unknown:
            again = error
            late.add(name)
        else:
            outcomes[name] = None if is_unknown and name in late else error
    if again is not None:
        raise again


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = topic.assignments or {}
    return CreatableTopic(
        name=topic.name,
        # With an explicit assignment both counts must be -1 (CreateTopics protocol).
        num_partitions=-1 if assignments else topic.num_partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=p, broker_ids=tuple(replicas))
            for p, replicas in sorted(assignments.items())
        ),
        configs=tuple(
            CreatableTopicConfig(name=k, value=v) for k, v in (topic.configs or {}).items()
        ),
    )


async def list_one_offset(
    cluster: Cluster, tp: TopicPartition, timestamp: int, isolation: int
) -> OffsetAndTimestamp:
    """One ListOffsets request to a partition's leader. Raises KafkaError, OSError."""
    node = await cluster.leader(*tp)
    entry = cluster.cache.partition(*tp)
    row = ListOffsetsPartition(
        partition_index=tp.partition,
        current_leader_epoch=-1 if entry is None else entry.leader_epoch,
        timestamp=timestamp,
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=(ListOffsetsTopic(name=tp.topic, partitions=(row,)),),
        timeout_ms=cluster.options.request_timeout_ms,
    )
    reply = await cluster.call(node, request, ListOffsetsResponse)
    answer = reply.topics[0].partitions[0]
    if answer.error_code:
        raise kafka_error(answer.error_code, f"offsets of {tp.topic}-{tp.partition}")
    return OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
