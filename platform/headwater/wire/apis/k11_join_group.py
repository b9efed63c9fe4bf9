"""JoinGroup (API key 11), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class JoinGroupRequestProtocol(Struct):
    """The list of protocols that the member supports."""

    name: str = wire("string", "0+")
    metadata: bytes | memoryview = wire("bytes", "0+")


@wire_schema
class JoinGroupRequest(Message):
    """API key 11, versions 0 to 9, flexible from 6."""

    api_key: ClassVar[int] = 11
    versions: ClassVar[tuple[int, int]] = (0, 9)
    flexible: ClassVar[int] = 6

    group_id: str = wire("string", "0+")
    session_timeout_ms: int = wire("int32", "0+")
    rebalance_timeout_ms: int = wire("int32", "1+", default=-1, ignorable=True)
    member_id: str = wire("string", "0+")
    group_instance_id: str | None = wire("string", "5+", nullable="5+", default=None)
    protocol_type: str = wire("string", "0+")
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire(
        JoinGroupRequestProtocol, "0+", array=True
    )
    reason: str | None = wire("string", "8+", nullable="8+", default=None, ignorable=True)


@wire_schema
class JoinGroupResponseMember(Struct):
    """The group members."""

    member_id: str = wire("string", "0+")
    group_instance_id: str | None = wire(
        "string", "5+", nullable="5+", default=None, ignorable=True
    )
    metadata: bytes | memoryview = wire("bytes", "0+")


@wire_schema
class JoinGroupResponse(Message):
    """API key 11, versions 0 to 9, flexible from 6."""

    api_key: ClassVar[int] = 11
    versions: ClassVar[tuple[int, int]] = (0, 9)
    flexible: ClassVar[int] = 6

    throttle_time_ms: int = wire("int32", "2+", ignorable=True)
    error_code: int = wire("int16", "0+")
    generation_id: int = wire("int32", "0+", default=-1)
    protocol_type: str | None = wire("string", "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = wire("string", "0+", nullable="7+")
    leader: str = wire("string", "0+")
    skip_assignment: bool = wire("bool", "9+")
    member_id: str = wire("string", "0+")
    members: tuple[JoinGroupResponseMember, ...] = wire(JoinGroupResponseMember, "0+", array=True)
