"""DescribeConfigs (API key 32), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribeConfigsResource(Struct):
    """The resources whose configurations we want to describe."""

    resource_type: int = wire("int8", "0+")
    resource_name: str = wire("string", "0+")
    configuration_keys: tuple[str, ...] | None = wire("string", "0+", array=True, nullable="0+")


@wire_schema
class DescribeConfigsRequest(Message):
    """API key 32, versions 1 to 4, flexible from 4."""

    api_key: ClassVar[int] = 32
    versions: ClassVar[tuple[int, int]] = (1, 4)
    flexible: ClassVar[int] = 4

    resources: tuple[DescribeConfigsResource, ...] = wire(DescribeConfigsResource, "0+", array=True)
    include_synonyms: bool = wire("bool", "1+")
    include_documentation: bool = wire("bool", "3+")


@wire_schema
class DescribeConfigsSynonym(Struct):
    """The synonyms for this configuration key."""

    name: str = wire("string", "1+")
    value: str | None = wire("string", "1+", nullable="0+")
    source: int = wire("int8", "1+")


@wire_schema
class DescribeConfigsResourceResult(Struct):
    """Each listed configuration."""

    name: str = wire("string", "0+")
    value: str | None = wire("string", "0+", nullable="0+")
    read_only: bool = wire("bool", "0+")
    config_source: int = wire("int8", "1+", default=-1, ignorable=True)
    is_sensitive: bool = wire("bool", "0+")
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(
        DescribeConfigsSynonym, "1+", array=True, ignorable=True
    )
    config_type: int = wire("int8", "3+", ignorable=True)
    documentation: str | None = wire("string", "3+", nullable="0+", ignorable=True)


@wire_schema
class DescribeConfigsResult(Struct):
    """The results for each resource."""

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    resource_type: int = wire("int8", "0+")
    resource_name: str = wire("string", "0+")
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(
        DescribeConfigsResourceResult, "0+", array=True
    )


@wire_schema
class DescribeConfigsResponse(Message):
    """API key 32, versions 1 to 4, flexible from 4."""

    api_key: ClassVar[int] = 32
    versions: ClassVar[tuple[int, int]] = (1, 4)
    flexible: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", "0+")
    results: tuple[DescribeConfigsResult, ...] = wire(DescribeConfigsResult, "0+", array=True)
