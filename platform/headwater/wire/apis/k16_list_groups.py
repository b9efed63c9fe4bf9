"""ListGroups (API key 16), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ListGroupsRequest(Message):
    """API key 16, versions 0 to 5, flexible from 3."""

    api_key: ClassVar[int] = 16
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 3

    states_filter: tuple[str, ...] = wire("string", "4+", array=True)
    types_filter: tuple[str, ...] = wire("string", "5+", array=True)


@wire_schema
class ListedGroup(Struct):
    """Each group in the response."""

    group_id: str = wire("string", "0+")
    protocol_type: str = wire("string", "0+")
    group_state: str = wire("string", "4+", ignorable=True)
    group_type: str = wire("string", "5+", ignorable=True)


@wire_schema
class ListGroupsResponse(Message):
    """API key 16, versions 0 to 5, flexible from 3."""

    api_key: ClassVar[int] = 16
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16", "0+")
    groups: tuple[ListedGroup, ...] = wire(ListedGroup, "0+", array=True)
