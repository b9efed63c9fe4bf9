"""DescribeAcls (API key 29), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribeAclsRequest(Message):
    """API key 29, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 29
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    resource_type_filter: int = wire("int8", "0+")
    resource_name_filter: str | None = wire("string", "0+", nullable="0+")
    pattern_type_filter: int = wire("int8", "0+", default=3)
    principal_filter: str | None = wire("string", "0+", nullable="0+")
    host_filter: str | None = wire("string", "0+", nullable="0+")
    operation: int = wire("int8", "0+")
    permission_type: int = wire("int8", "0+")


@wire_schema
class AclDescription(Struct):
    """One ACL of a resource."""

    principal: str = wire("string", "0+")
    host: str = wire("string", "0+")
    operation: int = wire("int8", "0+")
    permission_type: int = wire("int8", "0+")


@wire_schema
class DescribeAclsResource(Struct):
    """A resource and its ACLs."""

    resource_type: int = wire("int8", "0+")
    resource_name: str = wire("string", "0+")
    pattern_type: int = wire("int8", "0+", default=3)
    acls: tuple[AclDescription, ...] = wire(AclDescription, "0+", array=True)


@wire_schema
class DescribeAclsResponse(Message):
    """API key 29, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 29
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    resources: tuple[DescribeAclsResource, ...] = wire(DescribeAclsResource, "0+", array=True)
