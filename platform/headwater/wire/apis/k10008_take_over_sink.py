"""TakeOverSink (API key 10008): Headwater's own, for epoch transactions (docs/epochs.md)."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class TakeOverSinkRequest(Message):
    """API key 10008, version 0, flexible."""

    api_key: ClassVar[int] = 10008
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    sink: str = wire("string")
    owner: str = wire("string")
    """The query that owns the sink from now on; empty: the next one that joins."""
    last_epoch: int = wire("int64", default=-1)
    """The last committed epoch from now on: that of the owner's checkpoint; -1: none; -2
    (`KEEP_LAST_EPOCH`): as it is then."""


@wire_schema
class TakeOverSinkResponse(Message):
    """API key 10008, version 0, flexible."""

    api_key: ClassVar[int] = 10008
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    previous_owner: str = wire("string")
    previous_last_epoch: int = wire("int64", default=-1)
