"""Messages in versions that kio does not have yet, made of its classes of the version before.

The difference is written here after the published schema files of Apache Kafka; kio reads and
writes the bytes.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

from kio.schema.txn_offset_commit.v5 import request as request_v5
from kio.schema.txn_offset_commit.v5 import response as response_v5
from kio.static.primitive import i16

ENTITY_FIELDS = ("__type__", "__flexible__", "__api_key__", "__header_schema__")


def _next_version(cls: type[Any], version: int, **changed: tuple[str, Any, dict[str, str]]) -> Any:
    """The class of `version`: as `cls` but for the fields `changed`: name, type, metadata."""
    rows = []
    for old in dataclasses.fields(cls):
        name, kind, metadata = changed.get(old.name, (old.name, old.type, dict(old.metadata)))
        rows.append((name, kind, dataclasses.field(default=old.default, metadata=metadata)))
    namespace = {name: getattr(cls, name) for name in ENTITY_FIELDS}
    return dataclasses.make_dataclass(
        cls.__name__,
        rows,
        namespace={**namespace, "__version__": i16(version)},
        frozen=True,
        slots=True,
        kw_only=True,
    )


def _txn_offset_commit_v6(partition: type[Any], topic: type[Any], message: type[Any]) -> Any:
    """Version 6 names topics by id (KIP-1319)."""
    partition_v6 = _next_version(partition, 6)
    topic_v6 = _next_version(
        topic,
        6,
        name=("topic_id", uuid.UUID | None, {"kafka_type": "uuid"}),
        partitions=("partitions", tuple[partition_v6, ...], {}),  # type: ignore[valid-type]
    )
    return _next_version(message, 6, topics=("topics", tuple[topic_v6, ...], {}))


NEWER_VERSIONS: dict[tuple[str, int], Any] = {
    ("TxnOffsetCommitRequest", 6): _txn_offset_commit_v6(
        request_v5.TxnOffsetCommitRequestPartition,
        request_v5.TxnOffsetCommitRequestTopic,
        request_v5.TxnOffsetCommitRequest,
    ),
    ("TxnOffsetCommitResponse", 6): _txn_offset_commit_v6(
        response_v5.TxnOffsetCommitResponsePartition,
        response_v5.TxnOffsetCommitResponseTopic,
        response_v5.TxnOffsetCommitResponse,
    ),
}
"""kio's class by the message's name and version."""
