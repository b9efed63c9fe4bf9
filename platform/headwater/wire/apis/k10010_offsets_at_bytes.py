"""OffsetsAtBytes (API key 10010): Headwater's own, for the Spark source (`maxBytesPerTrigger`)."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class OffsetAtBytesPartition(Struct):
    """Asks for the offset at which `max_bytes` of log from `start_offset` on end."""

    topic: str = wire("string")
    partition: int = wire("int32")
    start_offset: int = wire("int64")
    max_bytes: int = wire("int64")


@wire_schema
class OffsetsAtBytesRequest(Message):
    """API key 10010, version 0, flexible. The leaders answer; it needs Read on each topic."""

    api_key: ClassVar[int] = 10010
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    partitions: tuple[OffsetAtBytesPartition, ...] = wire(OffsetAtBytesPartition, array=True)


@wire_schema
class OffsetAtBytesResult(Struct):
    """The end offset of one partition, or an error."""

    topic: str = wire("string")
    partition: int = wire("int32")
    error_code: int = wire("int16")
    end_offset: int = wire("int64", default=-1)


@wire_schema
class OffsetsAtBytesResponse(Message):
    """API key 10010, version 0, flexible."""

    api_key: ClassVar[int] = 10010
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    partitions: tuple[OffsetAtBytesResult, ...] = wire(OffsetAtBytesResult, array=True)
