"""AlterClientQuotas (API key 49), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.apis.k48_describe_client_quotas import EntityData
from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class OpData(Struct):
    """An individual quota configuration entry to alter."""

    key: str = wire("string", "0+")
    value: float = wire("float64", "0+")
    remove: bool = wire("bool", "0+")


@wire_schema
class AlterEntryData(Struct):
    """The quota configuration entries to alter."""

    entity: tuple[EntityData, ...] = wire(EntityData, "0+", array=True)
    ops: tuple[OpData, ...] = wire(OpData, "0+", array=True)


@wire_schema
class AlterClientQuotasRequest(Message):
    """API key 49, versions 0 to 1, flexible from 1."""

    api_key: ClassVar[int] = 49
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 1

    entries: tuple[AlterEntryData, ...] = wire(AlterEntryData, "0+", array=True)
    validate_only: bool = wire("bool", "0+")


@wire_schema
class AlteredEntryData(Struct):
    """The outcome of one entry."""

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    entity: tuple[EntityData, ...] = wire(EntityData, "0+", array=True)


@wire_schema
class AlterClientQuotasResponse(Message):
    """API key 49, versions 0 to 1, flexible from 1."""

    api_key: ClassVar[int] = 49
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32", "0+")
    entries: tuple[AlteredEntryData, ...] = wire(AlteredEntryData, "0+", array=True)
