"""DeleteAcls (API key 31), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DeleteAclsFilter(Struct):
    """Which ACLs to delete."""

    resource_type_filter: int = wire("int8", "0+")
    resource_name_filter: str | None = wire("string", "0+", nullable="0+")
    pattern_type_filter: int = wire("int8", "0+", default=3)
    principal_filter: str | None = wire("string", "0+", nullable="0+")
    host_filter: str | None = wire("string", "0+", nullable="0+")
    operation: int = wire("int8", "0+")
    permission_type: int = wire("int8", "0+")


@wire_schema
class DeleteAclsRequest(Message):
    """API key 31, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 31
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    filters: tuple[DeleteAclsFilter, ...] = wire(DeleteAclsFilter, "0+", array=True)


@wire_schema
class DeleteAclsMatchingAcl(Struct):
    """An ACL that a filter matches."""

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    resource_type: int = wire("int8", "0+")
    resource_name: str = wire("string", "0+")
    pattern_type: int = wire("int8", "0+", default=3)
    principal: str = wire("string", "0+")
    host: str = wire("string", "0+")
    operation: int = wire("int8", "0+")
    permission_type: int = wire("int8", "0+")


@wire_schema
class DeleteAclsFilterResult(Struct):
    """The outcome of one filter."""

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = wire(DeleteAclsMatchingAcl, "0+", array=True)


@wire_schema
class DeleteAclsResponse(Message):
    """API key 31, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 31
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    filter_results: tuple[DeleteAclsFilterResult, ...] = wire(
        DeleteAclsFilterResult, "0+", array=True
    )
