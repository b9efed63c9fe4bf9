"""AlterConfigs (API key 33), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class AlterableConfig(Struct):
    """The configurations."""

    name: str = wire("string", "0+")
    value: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class AlterConfigsResource(Struct):
    """The updates for each resource."""

    resource_type: int = wire("int8", "0+")
    resource_name: str = wire("string", "0+")
    configs: tuple[AlterableConfig, ...] = wire(AlterableConfig, "0+", array=True)


@wire_schema
class AlterConfigsRequest(Message):
    """API key 33, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 33
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    resources: tuple[AlterConfigsResource, ...] = wire(AlterConfigsResource, "0+", array=True)
    validate_only: bool = wire("bool", "0+")


@wire_schema
class AlterConfigsResourceResponse(Struct):
    """The responses for each resource."""

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    resource_type: int = wire("int8", "0+")
    resource_name: str = wire("string", "0+")


@wire_schema
class AlterConfigsResponse(Message):
    """API key 33, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 33
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(
        AlterConfigsResourceResponse, "0+", array=True
    )
