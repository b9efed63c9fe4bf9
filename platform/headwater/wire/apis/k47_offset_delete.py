"""OffsetDelete (API key 47), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import VERSION_MAX, Message, Struct, wire, wire_schema


@wire_schema
class OffsetDeleteRequestPartition(Struct):
    """Each partition to delete offsets for."""

    partition_index: int = wire("int32", "0+")


@wire_schema
class OffsetDeleteRequestTopic(Struct):
    """The topics to delete offsets for."""

    name: str = wire("string", "0+")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(
        OffsetDeleteRequestPartition, "0+", array=True
    )


@wire_schema
class OffsetDeleteRequest(Message):
    """API key 47, versions 0 to 0, never flexible."""

    api_key: ClassVar[int] = 47
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0+")
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(OffsetDeleteRequestTopic, "0+", array=True)


@wire_schema
class OffsetDeleteResponsePartition(Struct):
    """The responses for each partition in the topic."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")


@wire_schema
class OffsetDeleteResponseTopic(Struct):
    """The responses for each topic."""

    name: str = wire("string", "0+")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(
        OffsetDeleteResponsePartition, "0+", array=True
    )


@wire_schema
class OffsetDeleteResponse(Message):
    """API key 47, versions 0 to 0, never flexible."""

    api_key: ClassVar[int] = 47
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    error_code: int = wire("int16", "0+")
    throttle_time_ms: int = wire("int32", "0+", ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(
        OffsetDeleteResponseTopic, "0+", array=True
    )
