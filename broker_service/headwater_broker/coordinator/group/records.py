"""The records of `__consumer_offsets` in Kafka's formats: int16 version, then the fields.

The version of a key is its kind: 0 and 1 a committed offset, 2 a group. Kafka's console tools read
these records, and a log written by Kafka is loaded here.
"""

from __future__ import annotations

import struct
from typing import ClassVar, TypeVar
from uuid import UUID

from headwater.errors import HeadwaterError
from headwater.wire.schema import (
    VERSION_MAX,
    Message,
    SchemaError,
    Struct,
    decoder,
    encoder,
    wire,
    wire_schema,
)
from headwater_broker.coordinator.common.shard import StoredRecord

TopicPartition = tuple[str, int]
_VERSION = struct.Struct(">h")
OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_EXPIRING_VERSION = 1
"""The only version with an expiry of its own (OffsetCommit v2-4 with a retention time)."""
GROUP_VALUE_VERSION = 3

M = TypeVar("M", bound=Message)


class NewerRecordError(HeadwaterError):
    """A record written by a newer broker: loading without it would lose a group's offsets."""


@wire_schema
class OffsetCommitKey(Message):
    """Key versions 0 and 1: a committed offset."""

    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = VERSION_MAX

    group: str = wire("string")
    topic: str = wire("string")
    partition: int = wire("int32")


@wire_schema
class OffsetCommitValue(Message):
    """A committed offset."""

    versions: ClassVar[tuple[int, int]] = (0, 4)
    flexible: ClassVar[int] = 4

    offset: int = wire("int64")
    leader_epoch: int = wire("int32", "3+", default=-1, ignorable=True)
    metadata: str = wire("string")
    commit_timestamp: int = wire("int64")
    expire_timestamp: int = wire("int64", "1", default=-1, ignorable=True)
    topic_id: UUID = wire("uuid", "4+", tag=0, tagged="4+", ignorable=True)


@wire_schema
class GroupMetadataKey(Message):
    """Key version 2: a group."""

    versions: ClassVar[tuple[int, int]] = (2, 2)
    flexible: ClassVar[int] = VERSION_MAX

    group: str = wire("string")


@wire_schema
class MemberMetadata(Struct):
    """A member of a stable generation."""

    member_id: str = wire("string")
    group_instance_id: str | None = wire(
        "string", "3+", nullable="3+", default=None, ignorable=True
    )
    client_id: str = wire("string")
    client_host: str = wire("string")
    rebalance_timeout: int = wire("int32", "1+", ignorable=True)
    session_timeout: int = wire("int32")
    subscription: bytes | memoryview = wire("bytes")
    assignment: bytes | memoryview = wire("bytes")


@wire_schema
class GroupMetadataValue(Message):
    """The last complete generation of a group; without members: an empty group."""

    versions: ClassVar[tuple[int, int]] = (0, 4)
    flexible: ClassVar[int] = 4

    protocol_type: str = wire("string")
    generation: int = wire("int32")
    protocol: str | None = wire("string", nullable="0+", default=None)
    leader: str | None = wire("string", nullable="0+", default=None)
    current_state_timestamp: int = wire("int64", "2+", default=-1, ignorable=True)
    members: tuple[MemberMetadata, ...] = wire(MemberMetadata, array=True)


_OFFSET_KEY_HEAD = struct.Struct(">hh")
_OFFSET_VALUE_HEAD = struct.Struct(">hqih")
"""Version, offset, leader epoch, length of the metadata."""
_OFFSET_VALUE_TAIL = struct.Struct(">q")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
STRING_BYTES_MAX = 2**15 - 1
"""Longest text of a record's key or value."""


def versioned(message: Message, version: int) -> bytes:
    """The message behind its version."""
    return _VERSION.pack(version) + encoder(type(message), version)(message)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    name, topic_name = group.encode(), topic.encode()
    return b"".join(
        (
            _OFFSET_KEY_HEAD.pack(OFFSET_KEY_VERSION, len(name)),
            name,
            _INT16.pack(len(topic_name)),
            topic_name,
            _INT32.pack(partition),
        )
    )


def group_key(group: str) -> bytes:
    """The key of a group."""
    return versioned(GroupMetadataKey(group=group), GROUP_KEY_VERSION)


def offset_record(
    group: str, topic: str, partition: int, value: OffsetCommitValue | None
) -> StoredRecord:
    """A committed offset, or its tombstone."""
    key = offset_key(group, topic, partition)
    if value is None:
        return StoredRecord(key, None)
    if value.expire_timestamp >= 0:
        return StoredRecord(key, versioned(value, OFFSET_VALUE_EXPIRING_VERSION))
    metadata = value.metadata.encode()
    head = _OFFSET_VALUE_HEAD.pack(
        OFFSET_VALUE_VERSION, value.offset, value.leader_epoch, len(metadata)
    )
    return StoredRecord(key, head + metadata + _OFFSET_VALUE_TAIL.pack(value.commit_timestamp))


def group_record(group: str, value: GroupMetadataValue | None) -> StoredRecord:
    """A group's metadata, or its tombstone."""
    encoded = None if value is None else versioned(value, GROUP_VALUE_VERSION)
    return StoredRecord(group_key(group), encoded)


OFFSET_KINDS = frozenset((0, OFFSET_KEY_VERSION))
"""Versions of keys of committed offsets."""


def key_version(key: bytes) -> int:
    """The kind of a record. Raises SchemaError."""
    if len(key) < _VERSION.size:
        raise SchemaError(f"a key of {len(key)} bytes")
    return int(_VERSION.unpack_from(key)[0])


def read_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """The key; None for kinds that this broker does not know. Raises SchemaError."""
    version = key_version(key)
    if version in OFFSET_KINDS:
        return _read_offset_key(key)
    if version == GROUP_KEY_VERSION:
        return read_value(GroupMetadataKey, key)
    return None


def _read_offset_key(key: bytes) -> OffsetCommitKey:
    """Packed and unpacked here, as coordinators do it for each offset: four times as fast as by the
    schema, whose bytes they are."""
    try:
        _, size = _OFFSET_KEY_HEAD.unpack_from(key)
        group, at = _text(key, _OFFSET_KEY_HEAD.size, size)
        (size,) = _INT16.unpack_from(key, at)
        topic, at = _text(key, at + _INT16.size, size)
        (partition,) = _INT32.unpack_from(key, at)
    except (struct.error, ValueError) as e:
        raise SchemaError(f"OffsetCommitKey of {len(key)} bytes: {e}") from e
    return OffsetCommitKey(group=group, topic=topic, partition=partition)


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    """Raises ValueError."""
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError(f"a text of {size} bytes at byte {at}")
    return data[at:end].decode(), end


def read_offset(value: bytes) -> OffsetCommitValue:
    """Raises SchemaError, NewerRecordError."""
    if value[:2] != _INT16.pack(OFFSET_VALUE_VERSION):
        return read_value(OffsetCommitValue, value)
    try:
        _, offset, leader_epoch, size = _OFFSET_VALUE_HEAD.unpack_from(value)
        metadata, at = _text(value, _OFFSET_VALUE_HEAD.size, size)
        (timestamp,) = _OFFSET_VALUE_TAIL.unpack_from(value, at)
    except (struct.error, ValueError) as e:
        raise SchemaError(f"OffsetCommitValue of {len(value)} bytes: {e}") from e
    return OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=timestamp
    )


def read_group(value: bytes) -> GroupMetadataValue:
    """Raises SchemaError, NewerRecordError."""
    return read_value(GroupMetadataValue, value)


def read_value(cls: type[M], data: bytes) -> M:
    """The message behind its version. Raises SchemaError, NewerRecordError."""
    if len(data) < _VERSION.size:
        raise SchemaError(f"{cls.__name__}: {len(data)} bytes")
    version = _VERSION.unpack_from(data)[0]
    if version > cls.versions[1]:
        raise NewerRecordError(
            f"{cls.__name__} of version {version}, this broker reads up to {cls.versions[1]}: "
            "run the newer Headwater that wrote it on this broker, too"
        )
    return decoder(cls, version)(data, _VERSION.size)[0]
