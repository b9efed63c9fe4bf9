"""DescribeClientQuotas (API key 48), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ComponentData(Struct):
    """Filter components to apply to quota entities."""

    entity_type: str = wire("string", "0+")
    match_type: int = wire("int8", "0+")
    match: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class DescribeClientQuotasRequest(Message):
    """API key 48, versions 0 to 1, flexible from 1."""

    api_key: ClassVar[int] = 48
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 1

    components: tuple[ComponentData, ...] = wire(ComponentData, "0+", array=True)
    strict: bool = wire("bool", "0+")


@wire_schema
class EntityData(Struct):
    """The quota entity description."""

    entity_type: str = wire("string", "0+")
    entity_name: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class ValueData(Struct):
    """The quota values for the entity."""

    key: str = wire("string", "0+")
    value: float = wire("float64", "0+")


@wire_schema
class EntryData(Struct):
    """A result entry."""

    entity: tuple[EntityData, ...] = wire(EntityData, "0+", array=True)
    values: tuple[ValueData, ...] = wire(ValueData, "0+", array=True)


@wire_schema
class DescribeClientQuotasResponse(Message):
    """API key 48, versions 0 to 1, flexible from 1."""

    api_key: ClassVar[int] = 48
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    entries: tuple[EntryData, ...] | None = wire(EntryData, "0+", array=True, nullable="0+")
