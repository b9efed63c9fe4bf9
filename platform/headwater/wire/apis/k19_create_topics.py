"""CreateTopics (API key 19), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class CreatableReplicaAssignment(Struct):
    """The manual partition assignment, or the empty array if we are using automatic
    assignment.
    """

    partition_index: int = wire("int32", "0+")
    broker_ids: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class CreatableTopicConfig(Struct):
    """The custom topic configurations to set."""

    name: str = wire("string", "0+")
    value: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class CreatableTopic(Struct):
    """The topics to create."""

    name: str = wire("string", "0+")
    num_partitions: int = wire("int32", "0+")
    replication_factor: int = wire("int16", "0+")
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(
        CreatableReplicaAssignment, "0+", array=True
    )
    configs: tuple[CreatableTopicConfig, ...] = wire(CreatableTopicConfig, "0+", array=True)


@wire_schema
class CreateTopicsRequest(Message):
    """API key 19, versions 2 to 7, flexible from 5."""

    api_key: ClassVar[int] = 19
    versions: ClassVar[tuple[int, int]] = (2, 7)
    flexible: ClassVar[int] = 5

    topics: tuple[CreatableTopic, ...] = wire(CreatableTopic, "0+", array=True)
    timeout_ms: int = wire("int32", "0+", default=60000)
    validate_only: bool = wire("bool", "1+")


@wire_schema
class CreatableTopicConfigs(Struct):
    """Configuration of the topic."""

    name: str = wire("string", "5+")
    value: str | None = wire("string", "5+", nullable="5+")
    read_only: bool = wire("bool", "5+")
    config_source: int = wire("int8", "5+", default=-1, ignorable=True)
    is_sensitive: bool = wire("bool", "5+")


@wire_schema
class CreatableTopicResult(Struct):
    """Results for each topic we tried to create."""

    name: str = wire("string", "0+")
    topic_id: UUID = wire("uuid", "7+", ignorable=True)
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = wire("int16", "5+", tag=0, tagged="5+", ignorable=True)
    num_partitions: int = wire("int32", "5+", default=-1, ignorable=True)
    replication_factor: int = wire("int16", "5+", default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        CreatableTopicConfigs, "5+", array=True, nullable="5+", ignorable=True
    )


@wire_schema
class CreateTopicsResponse(Message):
    """API key 19, versions 2 to 7, flexible from 5."""

    api_key: ClassVar[int] = 19
    versions: ClassVar[tuple[int, int]] = (2, 7)
    flexible: ClassVar[int] = 5

    throttle_time_ms: int = wire("int32", "2+", ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = wire(CreatableTopicResult, "0+", array=True)
