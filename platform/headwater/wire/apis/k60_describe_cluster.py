"""DescribeCluster (API key 60), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribeClusterRequest(Message):
    """API key 60, versions 0 to 2, flexible from 0."""

    api_key: ClassVar[int] = 60
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 0

    include_cluster_authorized_operations: bool = wire("bool", "0+")
    endpoint_type: int = wire("int8", "1+", default=1)
    include_fenced_brokers: bool = wire("bool", "2+")


@wire_schema
class DescribeClusterBroker(Struct):
    """Each broker in the response."""

    broker_id: int = wire("int32", "0+")
    host: str = wire("string", "0+")
    port: int = wire("int32", "0+")
    rack: str | None = wire("string", "0+", nullable="0+", default=None)
    is_fenced: bool = wire("bool", "2+")


@wire_schema
class DescribeClusterResponse(Message):
    """API key 60, versions 0 to 2, flexible from 0."""

    api_key: ClassVar[int] = 60
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    endpoint_type: int = wire("int8", "1+", default=1)
    cluster_id: str = wire("string", "0+")
    controller_id: int = wire("int32", "0+", default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire(DescribeClusterBroker, "0+", array=True)
    cluster_authorized_operations: int = wire("int32", "0+", default=-2147483648)
