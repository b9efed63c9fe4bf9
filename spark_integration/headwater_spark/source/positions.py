"""The source's offsets in Spark's offset log: JSON that Spark compares byte for byte. Pure.

`{"from":{topic:{"0":n}},"to":{...},"topics":{name:id},"v":1}`, keys sorted, without timestamps.
Spark logs only end offsets, so each end holds its start: a batch is planned from `from` and `to` of
its end alone, and a restart cannot resolve "latest" again and skip rows. Spark takes two offsets
for equal only if their JSON texts are equal: when there is nothing new, the source returns the
start offset itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from headwater.errors import UsageError

FORMAT_VERSION = 1
INITIAL: dict[str, Any] = {"initial": True, "v": FORMAT_VERSION}
"""The offset before batch 0, which pins the real start offsets."""

_FIELDS = {"from", "to", "topics", "v"}

Offsets = Mapping[tuple[str, int], int]
"""(topic, partition) -> offset."""


@dataclass(frozen=True, slots=True)
class Position:
    """One micro-batch: offsets [start, end) of each partition, and the topics' ids."""

    start: Offsets
    end: Offsets
    topic_ids: Mapping[str, str]
    """Topic -> its id in Kafka's base64 form; a recreated topic has another id."""

    def to_json(self) -> dict[str, Any]:
        """The offset for Spark, in the one key order: its text is compared."""
        return {
            "from": offsets_to_json(self.start),
            "to": offsets_to_json(self.end),
            "topics": dict(sorted(self.topic_ids.items())),
            "v": FORMAT_VERSION,
        }

    def text(self) -> str:
        """The compact JSON text, as in a checkpoint's offset log."""
        return json.dumps(self.to_json(), separators=(",", ":"))


def is_initial(value: Mapping[str, Any]) -> bool:
    """True for the offset before batch 0."""
    return bool(value.get("initial"))


def is_position(value: object) -> TypeGuard[Mapping[str, Any]]:
    """True for an offset that this module wrote; False for the initial one and other sources'."""
    return isinstance(value, Mapping) and value.keys() == _FIELDS and value["v"] == FORMAT_VERSION


def from_json(value: Mapping[str, Any]) -> Position:
    """Parse an offset. Raises UsageError for another format: another source's checkpoint."""
    version = value.get("v")
    if version != FORMAT_VERSION:
        raise UsageError(
            f"the checkpoint's offset has format {version!r}, this Headwater reads format"
            f" {FORMAT_VERSION}: run the query with the newer Headwater that wrote it, or, if"
            " another source wrote it, with a checkpoint of its own"
        )
    if is_initial(value):
        raise UsageError("the checkpoint's offset is the initial one: no batch was planned yet")
    return Position(
        start=_offsets(value["from"]),
        end=_offsets(value["to"]),
        topic_ids={str(k): str(v) for k, v in value["topics"].items()},
    )


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Kafka's shape `{"topic":{"0":23}}`, topics by name, partitions by number."""
    result: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(partition)] = offset
    return result


def _offsets(value: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }
