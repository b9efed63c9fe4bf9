"""Data of the classic protocol in consumer groups: Kafka's ConsumerProtocol. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from headwater.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from headwater.wire.schema import SchemaError, decoder, encode
from headwater_broker.coordinator.group.consumer.subscriptions import Topics

_VERSION_BYTES = 2


def _version(data: bytes) -> int:
    """Newer versions only add fields at the end. Raises SchemaError."""
    if len(data) < _VERSION_BYTES:
        raise SchemaError(f"{len(data)} bytes of a consumer's metadata")
    low, high = ConsumerProtocolSubscription.versions
    return min(max(int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), low), high)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """A member's metadata. Raises SchemaError."""
    return decoder(ConsumerProtocolSubscription, _version(data))(data, _VERSION_BYTES)[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """A member's assignment; empty before its first one. Raises SchemaError."""
    if not data:
        return ConsumerProtocolAssignment()
    return decoder(ConsumerProtocolAssignment, _version(data))(data, _VERSION_BYTES)[0]


def by_id(rows: Iterable[TopicPartition], topics: Topics) -> dict[UUID, frozenset[int]]:
    """Topics that do not exist any more are left out."""
    found: dict[UUID, frozenset[int]] = {}
    for row in rows:
        known = topics.by_name(row.topic)
        if known is not None and row.partitions:
            before = found.get(known.topic_id, frozenset())
            found[known.topic_id] = before | frozenset(row.partitions)
    return found


def assignment_bytes(
    partitions: Mapping[UUID, Iterable[int]], topics: Topics, metadata: bytes
) -> bytes:
    """An assignment in the version of the member's own metadata."""
    rows = []
    for topic_id in sorted(partitions):
        known = topics.by_id(topic_id)
        if known is not None:
            rows.append(
                TopicPartition(topic=known.name, partitions=tuple(sorted(partitions[topic_id])))
            )
    version = _version(metadata)
    body = encode(ConsumerProtocolAssignment(assigned_partitions=tuple(rows)), version)
    return version.to_bytes(_VERSION_BYTES, "big") + body
