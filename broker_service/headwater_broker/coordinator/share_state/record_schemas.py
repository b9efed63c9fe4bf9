"""The records of `__share_group_state` (KIP-932), from Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import VERSION_MAX, Message, Struct, wire, wire_schema


@wire_schema
class ShareSnapshotKey(Message):
    """Record type 0."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")
    topic_id: UUID = wire("uuid", "0")
    partition: int = wire("int32", "0")


@wire_schema
class StateBatch(Struct):
    """The state batches."""

    first_offset: int = wire("int64", "0+")
    last_offset: int = wire("int64", "0+")
    delivery_state: int = wire("int8", "0+")
    delivery_count: int = wire("int16", "0+")


@wire_schema
class ShareSnapshotValue(Message):
    """Record type 0."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    snapshot_epoch: int = wire("int32", "0+")
    state_epoch: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+")
    start_offset: int = wire("int64", "0+")
    delivery_complete_count: int = wire("int32", "0+", default=-1, tag=0, tagged="0+")
    create_timestamp: int = wire("int64", "0+")
    write_timestamp: int = wire("int64", "0+")
    state_batches: tuple[StateBatch, ...] = wire(StateBatch, "0+", array=True)
    holds: bytes = wire("bytes", "0+", default=b"", tag=10000, tagged="0+", ignorable=True)
    """The table of holds, of brokers that know them: Headwater's own field."""


@wire_schema
class ShareUpdateKey(Message):
    """Record type 1."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")
    topic_id: UUID = wire("uuid", "0")
    partition: int = wire("int32", "0")


@wire_schema
class ShareUpdateValue(Message):
    """Record type 1."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    snapshot_epoch: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+")
    start_offset: int = wire("int64", "0+")
    delivery_complete_count: int = wire("int32", "0+", default=-1, tag=0, tagged="0+")
    state_batches: tuple[StateBatch, ...] = wire(StateBatch, "0+", array=True)
    holds: bytes = wire("bytes", "0+", default=b"", tag=10000, tagged="0+", ignorable=True)
    """The table of holds, of brokers that know them: Headwater's own field."""
