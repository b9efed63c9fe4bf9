"""DescribeGroups (API key 15), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribeGroupsRequest(Message):
    """API key 15, versions 0 to 6, flexible from 5."""

    api_key: ClassVar[int] = 15
    versions: ClassVar[tuple[int, int]] = (0, 6)
    flexible: ClassVar[int] = 5

    groups: tuple[str, ...] = wire("string", "0+", array=True)
    include_authorized_operations: bool = wire("bool", "3+")


@wire_schema
class DescribedGroupMember(Struct):
    """The group members."""

    member_id: str = wire("string", "0+")
    group_instance_id: str | None = wire(
        "string", "4+", nullable="4+", default=None, ignorable=True
    )
    client_id: str = wire("string", "0+")
    client_host: str = wire("string", "0+")
    member_metadata: bytes | memoryview = wire("bytes", "0+")
    member_assignment: bytes | memoryview = wire("bytes", "0+")


@wire_schema
class DescribedGroup(Struct):
    """Each described group."""

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "6+", nullable="6+", default=None)
    group_id: str = wire("string", "0+")
    group_state: str = wire("string", "0+")
    protocol_type: str = wire("string", "0+")
    protocol_data: str = wire("string", "0+")
    members: tuple[DescribedGroupMember, ...] = wire(DescribedGroupMember, "0+", array=True)
    authorized_operations: int = wire("int32", "3+", default=-2147483648)


@wire_schema
class DescribeGroupsResponse(Message):
    """API key 15, versions 0 to 6, flexible from 5."""

    api_key: ClassVar[int] = 15
    versions: ClassVar[tuple[int, int]] = (0, 6)
    flexible: ClassVar[int] = 5

    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    groups: tuple[DescribedGroup, ...] = wire(DescribedGroup, "0+", array=True)
