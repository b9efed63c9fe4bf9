"""FindCoordinator (API key 10), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class FindCoordinatorRequest(Message):
    """API key 10, versions 0 to 6, flexible from 3."""

    api_key: ClassVar[int] = 10
    versions: ClassVar[tuple[int, int]] = (0, 6)
    flexible: ClassVar[int] = 3

    key: str = wire("string", "0-3")
    key_type: int = wire("int8", "1+")
    coordinator_keys: tuple[str, ...] = wire("string", "4+", array=True)


@wire_schema
class Coordinator(Struct):
    """Each coordinator result in the response."""

    key: str = wire("string", "4+")
    node_id: int = wire("int32", "4+")
    host: str = wire("string", "4+")
    port: int = wire("int32", "4+")
    error_code: int = wire("int16", "4+")
    error_message: str | None = wire("string", "4+", nullable="4+", ignorable=True)


@wire_schema
class FindCoordinatorResponse(Message):
    """API key 10, versions 0 to 6, flexible from 3."""

    api_key: ClassVar[int] = 10
    versions: ClassVar[tuple[int, int]] = (0, 6)
    flexible: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16", "0-3")
    error_message: str | None = wire("string", "1-3", nullable="1-3", ignorable=True)
    node_id: int = wire("int32", "0-3")
    host: str = wire("string", "0-3")
    port: int = wire("int32", "0-3")
    coordinators: tuple[Coordinator, ...] = wire(Coordinator, "4+", array=True)
