"""DeleteShareGroupOffsets (API key 92), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DeleteShareGroupOffsetsRequestTopic(Struct):
    """The topics to delete offsets for."""

    topic_name: str = wire("string", "0+")


@wire_schema
class DeleteShareGroupOffsetsRequest(Message):
    """API key 92, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 92
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    group_id: str = wire("string", "0+")
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...] = wire(
        DeleteShareGroupOffsetsRequestTopic, "0+", array=True
    )


@wire_schema
class DeleteShareGroupOffsetsResponseTopic(Struct):
    """The results for each topic."""

    topic_name: str = wire("string", "0+")
    topic_id: UUID = wire("uuid", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class DeleteShareGroupOffsetsResponse(Message):
    """API key 92, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 92
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = wire(
        DeleteShareGroupOffsetsResponseTopic, "0+", array=True
    )
