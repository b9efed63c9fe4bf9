"""DeleteGroups (API key 42), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest(Message):
    """API key 42, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 42
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    groups_names: tuple[str, ...] = wire("string", "0+", array=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult(Struct):
    """The deletion results."""

    group_id: str = wire("string", "0+")
    error_code: int = wire("int16", "0+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse(Message):
    """API key 42, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 42
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    results: tuple[DeletableGroupResult, ...] = wire(DeletableGroupResult, "0+", array=True)
