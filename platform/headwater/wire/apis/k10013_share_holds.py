"""ShareHolds (API key 10013): Headwater's own, for the queue source of Spark."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ShareHoldRange(Struct):
    """Offsets, both inclusive."""

    first_offset: int = wire("int64")
    last_offset: int = wire("int64")


@wire_schema
class ShareHoldPartition(Struct):
    """Ranges of one partition, for one batch of the owner. A partition may be named again."""

    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    batch: int = wire("int64", default=-1)
    ranges: tuple[ShareHoldRange, ...] = wire(ShareHoldRange, array=True, default=())


@wire_schema
class ShareHoldsRequest(Message):
    """API key 10013, version 0, flexible. The leaders answer. It needs Read on group and topics, to
    describe Describe on the group."""

    api_key: ClassVar[int] = 10013
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    group_id: str = wire("string")
    operation: int = wire("int8")
    owner: str = wire("string", default="")
    ticket: int = wire("int64", default=-1)
    member_id: str = wire("string", default="")
    partitions: tuple[ShareHoldPartition, ...] = wire(ShareHoldPartition, array=True)


@wire_schema
class ShareHold(Struct):
    """What an owner holds."""

    owner: str = wire("string")
    batch: int = wire("int64")
    first_offset: int = wire("int64")
    last_offset: int = wire("int64")


@wire_schema
class ShareHoldsResult(Struct):
    """One partition of the request, after the operation. `holds`: the owner's; when describing, of
    all owners."""

    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    log_start_offset: int = wire("int64", default=-1)
    holds: tuple[ShareHold, ...] = wire(ShareHold, array=True, default=())


@wire_schema
class ShareHoldsResponse(Message):
    """API key 10013, version 0, flexible."""

    api_key: ClassVar[int] = 10013
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16", default=0)
    error_message: str | None = wire("string", nullable="0+", default=None)
    partitions: tuple[ShareHoldsResult, ...] = wire(ShareHoldsResult, array=True, default=())
