"""DeleteTopics (API key 20), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DeleteTopicState(Struct):
    """The name or topic ID of the topic."""

    name: str | None = wire("string", "6+", nullable="6+", default=None)
    topic_id: UUID = wire("uuid", "6+")


@wire_schema
class DeleteTopicsRequest(Message):
    """API key 20, versions 1 to 6, flexible from 4."""

    api_key: ClassVar[int] = 20
    versions: ClassVar[tuple[int, int]] = (1, 6)
    flexible: ClassVar[int] = 4

    topics: tuple[DeleteTopicState, ...] = wire(DeleteTopicState, "6+", array=True)
    topic_names: tuple[str, ...] = wire("string", "0-5", array=True, ignorable=True)
    timeout_ms: int = wire("int32", "0+")


@wire_schema
class DeletableTopicResult(Struct):
    """The results for each topic we tried to delete."""

    name: str | None = wire("string", "0+", nullable="6+")
    topic_id: UUID = wire("uuid", "6+", ignorable=True)
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)


@wire_schema
class DeleteTopicsResponse(Message):
    """API key 20, versions 1 to 6, flexible from 4."""

    api_key: ClassVar[int] = 20
    versions: ClassVar[tuple[int, int]] = (1, 6)
    flexible: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = wire(DeletableTopicResult, "0+", array=True)
