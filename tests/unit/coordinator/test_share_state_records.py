"""The records of `__share_group_state` are Kafka's: what Headwater adds is passed over there."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar
from uuid import UUID

import pytest

from headwater.wire.schema import Message, decoder, encode, wire, wire_schema
from headwater_broker.coordinator.share_state import record_schemas as schemas
from headwater_broker.coordinator.share_state.records import (
    KIND_BYTES,
    snapshot_record,
    update_record,
)
from headwater_broker.replica.share.ports import SharePartitionKey

KEY = SharePartitionKey("queue", UUID(int=7), 1)
ROWS = (schemas.StateBatch(first_offset=4, last_offset=9, delivery_state=2, delivery_count=3),)


@wire_schema
class KafkaSnapshot(Message):
    """ShareSnapshotValue.json of Apache Kafka 4.3."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    snapshot_epoch: int = wire("int32", "0+")
    state_epoch: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+")
    start_offset: int = wire("int64", "0+")
    delivery_complete_count: int = wire("int32", "0+", default=-1, tag=0, tagged="0+")
    create_timestamp: int = wire("int64", "0+")
    write_timestamp: int = wire("int64", "0+")
    state_batches: tuple[schemas.StateBatch, ...] = wire(schemas.StateBatch, "0+", array=True)


@wire_schema
class KafkaUpdate(Message):
    """ShareUpdateValue.json of Apache Kafka 4.3."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    snapshot_epoch: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+")
    start_offset: int = wire("int64", "0+")
    delivery_complete_count: int = wire("int32", "0+", default=-1, tag=0, tagged="0+")
    state_batches: tuple[schemas.StateBatch, ...] = wire(schemas.StateBatch, "0+", array=True)


@pytest.mark.parametrize("holds", [b"", b"held", bytes(5_000)])
@pytest.mark.parametrize("count", [-1, 8])
def test_kafka_s_schemas_read_values_with_holds(holds: bytes, count: int) -> None:
    snapshot = schemas.ShareSnapshotValue(
        snapshot_epoch=1,
        state_epoch=2,
        leader_epoch=3,
        start_offset=4,
        delivery_complete_count=count,
        create_timestamp=5,
        write_timestamp=6,
        state_batches=ROWS,
        holds=holds,
    )
    update = schemas.ShareUpdateValue(
        snapshot_epoch=1,
        leader_epoch=3,
        start_offset=4,
        delivery_complete_count=count,
        state_batches=ROWS,
        holds=holds,
    )
    rows = (
        (snapshot_record(KEY, snapshot).value, KafkaSnapshot, snapshot),
        (update_record(KEY, update).value, KafkaUpdate, update),
    )
    for value, kafka, written in rows:
        assert value is not None
        expected = kafka(**{row.name: getattr(written, row.name) for row in fields(kafka)})
        found, end = decoder(kafka, 0)(value, KIND_BYTES)
        assert (found, end) == (expected, len(value))
        if not holds:
            assert value[KIND_BYTES:] == encode(expected, 0), "without holds the bytes are Kafka's"
