"""LeaveGroup (API key 13), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class MemberIdentity(Struct):
    """List of leaving member identities."""

    member_id: str = wire("string", "3+")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None)
    reason: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)


@wire_schema
class LeaveGroupRequest(Message):
    """API key 13, versions 0 to 5, flexible from 4."""

    api_key: ClassVar[int] = 13
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 4

    group_id: str = wire("string", "0+")
    member_id: str = wire("string", "0-2")
    members: tuple[MemberIdentity, ...] = wire(MemberIdentity, "3+", array=True)


@wire_schema
class MemberResponse(Struct):
    """List of leaving member responses."""

    member_id: str = wire("string", "3+")
    group_instance_id: str | None = wire("string", "3+", nullable="3+")
    error_code: int = wire("int16", "3+")


@wire_schema
class LeaveGroupResponse(Message):
    """API key 13, versions 0 to 5, flexible from 4."""

    api_key: ClassVar[int] = 13
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16", "0+")
    members: tuple[MemberResponse, ...] = wire(MemberResponse, "3+", array=True)
