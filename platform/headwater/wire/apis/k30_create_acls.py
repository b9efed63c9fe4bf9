"""CreateAcls (API key 30), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class AclCreation(Struct):
    """An ACL to create."""

    resource_type: int = wire("int8", "0+")
    resource_name: str = wire("string", "0+")
    resource_pattern_type: int = wire("int8", "0+", default=3)
    principal: str = wire("string", "0+")
    host: str = wire("string", "0+")
    operation: int = wire("int8", "0+")
    permission_type: int = wire("int8", "0+")


@wire_schema
class CreateAclsRequest(Message):
    """API key 30, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 30
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    creations: tuple[AclCreation, ...] = wire(AclCreation, "0+", array=True)


@wire_schema
class AclCreationResult(Struct):
    """The outcome of one creation."""

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class CreateAclsResponse(Message):
    """API key 30, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 30
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    results: tuple[AclCreationResult, ...] = wire(AclCreationResult, "0+", array=True)
