"""Metadata (API key 3), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class MetadataRequestTopic(Struct):
    """The topics to fetch metadata for."""

    topic_id: UUID = wire("uuid", "10+", ignorable=True)
    name: str | None = wire("string", "0+", nullable="10+")


@wire_schema
class MetadataRequest(Message):
    """API key 3, versions 0 to 13, flexible from 9."""

    api_key: ClassVar[int] = 3
    versions: ClassVar[tuple[int, int]] = (0, 13)
    flexible: ClassVar[int] = 9

    topics: tuple[MetadataRequestTopic, ...] | None = wire(
        MetadataRequestTopic, "0+", array=True, nullable="1+"
    )
    allow_auto_topic_creation: bool = wire("bool", "4+", default=True)
    include_cluster_authorized_operations: bool = wire("bool", "8-10")
    include_topic_authorized_operations: bool = wire("bool", "8+")


@wire_schema
class MetadataResponseBroker(Struct):
    """A list of brokers present in the cluster."""

    node_id: int = wire("int32", "0+")
    host: str = wire("string", "0+")
    port: int = wire("int32", "0+")
    rack: str | None = wire("string", "1+", nullable="1+", default=None, ignorable=True)


@wire_schema
class MetadataResponsePartition(Struct):
    """Each partition in the topic."""

    error_code: int = wire("int16", "0+")
    partition_index: int = wire("int32", "0+")
    leader_id: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "7+", default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire("int32", "0+", array=True)
    isr_nodes: tuple[int, ...] = wire("int32", "0+", array=True)
    offline_replicas: tuple[int, ...] = wire("int32", "5+", array=True, ignorable=True)


@wire_schema
class MetadataResponseTopic(Struct):
    """Each topic in the response."""

    error_code: int = wire("int16", "0+")
    name: str | None = wire("string", "0+", nullable="12+")
    topic_id: UUID = wire("uuid", "10+", ignorable=True)
    is_internal: bool = wire("bool", "1+", ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = wire(
        MetadataResponsePartition, "0+", array=True
    )
    topic_authorized_operations: int = wire("int32", "8+", default=-2147483648)


@wire_schema
class MetadataResponse(Message):
    """API key 3, versions 0 to 13, flexible from 9."""

    api_key: ClassVar[int] = 3
    versions: ClassVar[tuple[int, int]] = (0, 13)
    flexible: ClassVar[int] = 9

    throttle_time_ms: int = wire("int32", "3+", ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = wire(MetadataResponseBroker, "0+", array=True)
    cluster_id: str | None = wire("string", "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = wire("int32", "1+", default=-1, ignorable=True)
    topics: tuple[MetadataResponseTopic, ...] = wire(MetadataResponseTopic, "0+", array=True)
    cluster_authorized_operations: int = wire("int32", "8-10", default=-2147483648)
    error_code: int = wire("int16", "13+", ignorable=True)
