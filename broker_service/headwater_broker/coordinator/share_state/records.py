"""The records of `__share_group_state` in Kafka's formats: int16 version, then the fields.

The version of a key is its kind: 0 a snapshot, 1 an update of the snapshot before it. Kafka's
console formatter reads these records, and a log written by Kafka is loaded here.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from headwater.errors import HeadwaterError
from headwater.wire.schema import Message, SchemaError, decoder, encoder
from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.share_state import record_schemas as schemas
from headwater_broker.replica.share.ports import SharePartitionKey, StateBatch

_VERSION = struct.Struct(">h")
SNAPSHOT_KIND = 0
UPDATE_KIND = 1
VALUE_VERSION = 0
KIND_BYTES = _VERSION.size
UPDATE_KIND_BYTES = _VERSION.pack(UPDATE_KIND)

M = TypeVar("M", bound=Message)


class NewerShareRecordError(HeadwaterError):
    """A record written by a newer broker: loading without it would lose delivery states."""


def snapshot_record(
    key: SharePartitionKey, value: schemas.ShareSnapshotValue | None
) -> StoredRecord:
    """A snapshot; None: the tombstone of the share partition."""
    return StoredRecord(snapshot_key(key), None if value is None else _versioned(value))


def update_record(key: SharePartitionKey, value: schemas.ShareUpdateValue) -> StoredRecord:
    """A change of the state that the last snapshot and the updates after it make."""
    fields = schemas.ShareUpdateKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    encoded = _VERSION.pack(UPDATE_KIND) + encoder(schemas.ShareUpdateKey, 0)(fields)
    return StoredRecord(encoded, _versioned(value))


def snapshot_key(key: SharePartitionKey) -> bytes:
    """The key of a snapshot; that of an update differs in its kind only."""
    fields = schemas.ShareSnapshotKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return _VERSION.pack(SNAPSHOT_KIND) + encoder(schemas.ShareSnapshotKey, 0)(fields)


def kind_of(key: bytes) -> int:
    """The kind of a record by its key. Raises SchemaError."""
    if len(key) < _VERSION.size:
        raise SchemaError(f"a key of {len(key)} bytes")
    kind: int = _VERSION.unpack_from(key)[0]
    return kind


def read_key(key: bytes) -> SharePartitionKey:
    """The share partition of a snapshot or update. Raises SchemaError."""
    found = decoder(schemas.ShareSnapshotKey, 0)(key, _VERSION.size)[0]
    return SharePartitionKey(found.group_id, found.topic_id, found.partition)


def read_snapshot(value: bytes) -> schemas.ShareSnapshotValue:
    """Raises SchemaError, NewerShareRecordError."""
    return _read(schemas.ShareSnapshotValue, value)


def read_update(value: bytes) -> schemas.ShareUpdateValue:
    """Raises SchemaError, NewerShareRecordError."""
    return _read(schemas.ShareUpdateValue, value)


def from_rows(rows: tuple[schemas.StateBatch, ...]) -> list[StateBatch]:
    """The batches of a record."""
    return [
        StateBatch(r.first_offset, r.last_offset, r.delivery_state, r.delivery_count) for r in rows
    ]


def to_rows(batches: list[StateBatch]) -> tuple[schemas.StateBatch, ...]:
    """The batches for a record."""
    return tuple(
        schemas.StateBatch(
            first_offset=b.first_offset,
            last_offset=b.last_offset,
            delivery_state=b.delivery_state,
            delivery_count=b.delivery_count,
        )
        for b in batches
    )


def _versioned(value: Message) -> bytes:
    return _VERSION.pack(VALUE_VERSION) + encoder(type(value), VALUE_VERSION)(value)


def _read(schema: type[M], data: bytes) -> M:
    if len(data) < _VERSION.size:
        raise SchemaError(f"{schema.__name__}: {len(data)} bytes")
    version = _VERSION.unpack_from(data)[0]
    if version > VALUE_VERSION:
        raise NewerShareRecordError(
            f"{schema.__name__} has version {version}, this broker reads {VALUE_VERSION}: run the "
            "newer Headwater that wrote it on this broker"
        )
    return decoder(schema, version)(data, _VERSION.size)[0]
