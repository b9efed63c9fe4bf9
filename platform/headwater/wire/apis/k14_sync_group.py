"""SyncGroup (API key 14), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class SyncGroupRequestAssignment(Struct):
    """Each assignment."""

    member_id: str = wire("string", "0+")
    assignment: bytes | memoryview = wire("bytes", "0+")


@wire_schema
class SyncGroupRequest(Message):
    """API key 14, versions 0 to 5, flexible from 4."""

    api_key: ClassVar[int] = 14
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 4

    group_id: str = wire("string", "0+")
    generation_id: int = wire("int32", "0+")
    member_id: str = wire("string", "0+")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None)
    protocol_type: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire(
        SyncGroupRequestAssignment, "0+", array=True
    )


@wire_schema
class SyncGroupResponse(Message):
    """API key 14, versions 0 to 5, flexible from 4."""

    api_key: ClassVar[int] = 14
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16", "0+")
    protocol_type: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes | memoryview = wire("bytes", "0+")
