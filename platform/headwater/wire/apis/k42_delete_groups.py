"""DeleteGroups (API key 42), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DeleteGroupsRequest(Message):
    """API key 42, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 42
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    groups_names: tuple[str, ...] = wire("string", "0+", array=True)


@wire_schema
class DeletableGroupResult(Struct):
    """The deletion results."""

    group_id: str = wire("string", "0+")
    error_code: int = wire("int16", "0+")


@wire_schema
class DeleteGroupsResponse(Message):
    """API key 42, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 42
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    results: tuple[DeletableGroupResult, ...] = wire(DeletableGroupResult, "0+", array=True)
