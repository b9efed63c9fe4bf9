"""ListConfigResources (API key 74), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ListConfigResourcesRequest(Message):
    """API key 74, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 74
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    resource_types: tuple[int, ...] = wire("int8", "1+", array=True)


@wire_schema
class ConfigResource(Struct):
    """Each config resource in the response."""

    resource_name: str = wire("string", "0+")
    resource_type: int = wire("int8", "1+", default=16, ignorable=True)


@wire_schema
class ListConfigResourcesResponse(Message):
    """API key 74, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 74
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    config_resources: tuple[ConfigResource, ...] = wire(ConfigResource, "0+", array=True)
