"""DeleteSinks (API key 10007): Headwater's own, for epoch transactions (docs/epochs.md)."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DeleteSinksRequest(Message):
    """API key 10007, version 0, flexible."""

    api_key: ClassVar[int] = 10007
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    sinks: tuple[str, ...] = wire("string", array=True)


@wire_schema
class DeletedSink(Struct):
    """The outcome for one sink."""

    sink: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)


@wire_schema
class DeleteSinksResponse(Message):
    """API key 10007, version 0, flexible."""

    api_key: ClassVar[int] = 10007
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    sinks: tuple[DeletedSink, ...] = wire(DeletedSink, array=True)
