"""CreatePartitions (API key 37), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class CreatePartitionsAssignment(Struct):
    """The new partition assignments."""

    broker_ids: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class CreatePartitionsTopic(Struct):
    """Each topic that we want to create new partitions inside."""

    name: str = wire("string", "0+")
    count: int = wire("int32", "0+")
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(
        CreatePartitionsAssignment, "0+", array=True, nullable="0+"
    )


@wire_schema
class CreatePartitionsRequest(Message):
    """API key 37, versions 0 to 3, flexible from 2."""

    api_key: ClassVar[int] = 37
    versions: ClassVar[tuple[int, int]] = (0, 3)
    flexible: ClassVar[int] = 2

    topics: tuple[CreatePartitionsTopic, ...] = wire(CreatePartitionsTopic, "0+", array=True)
    timeout_ms: int = wire("int32", "0+")
    validate_only: bool = wire("bool", "0+")


@wire_schema
class CreatePartitionsTopicResult(Struct):
    """The partition creation results for each topic."""

    name: str = wire("string", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class CreatePartitionsResponse(Message):
    """API key 37, versions 0 to 3, flexible from 2."""

    api_key: ClassVar[int] = 37
    versions: ClassVar[tuple[int, int]] = (0, 3)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    results: tuple[CreatePartitionsTopicResult, ...] = wire(
        CreatePartitionsTopicResult, "0+", array=True
    )
