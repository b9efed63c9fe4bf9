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
EXCERPT_CHARS = 200
"""Of a foreign offset in an error: it may list thousands of partitions."""

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


def is_initial(value: object) -> bool:
    """True for the offset before batch 0, of this format."""
    return value == INITIAL


def is_position(value: object) -> TypeGuard[Mapping[str, Any]]:
    """True for an offset that this module wrote; False for the initial one and other sources'."""
    return isinstance(value, Mapping) and value.keys() == _FIELDS and value["v"] == FORMAT_VERSION


def from_json(value: object) -> Position:
    """Parse an offset of a checkpoint. Raises UsageError, which says what was found, for any other.

    Spark hands over whatever the checkpoint holds: another source's offset must not become a start.
    """
    version = value.get("v") if isinstance(value, Mapping) else None
    is_ours = isinstance(value, Mapping) and ("initial" in value or value.keys() >= _FIELDS)
    if not isinstance(value, Mapping) or not is_ours or not isinstance(version, int):
        raise UsageError(
            f"the checkpoint holds {_origin(value)}, not of a headwater source: {_excerpt(value)}."
            " Start this query with a checkpoint of its own; startingOffsets says where it begins"
        )
    if version != FORMAT_VERSION:
        raise UsageError(
            f"the checkpoint's offset has format {version}, this Headwater reads format"
            f" {FORMAT_VERSION}: run the query with the Headwater that wrote it, or a newer one"
        )
    if is_initial(value):
        raise UsageError("the checkpoint's offset is the initial one: no batch was planned yet")
    try:
        return Position(
            start=_offsets(value["from"]),
            end=_offsets(value["to"]),
            topic_ids={str(k): str(v) for k, v in value["topics"].items()},
        )
    except (AttributeError, TypeError, ValueError) as e:
        raise UsageError(f"the checkpoint's offset is damaged ({e}): {_excerpt(value)}") from e


def _origin(value: object) -> str:
    """The kind of source that writes such an offset, as far as its form shows it."""
    if isinstance(value, int):
        return "a number, as an offset of the rate or socket source"
    if isinstance(value, Mapping):
        if "reservoirId" in value or "sourceVersion" in value:
            return "an offset of a Delta table's stream"
        if "logOffset" in value:
            return "an offset of a file source"
        if value and all(isinstance(row, Mapping) for row in value.values()):
            numbers = [str(key) for row in value.values() for key in row]
            if all(number.isdigit() for number in numbers):
                return "an offset of Spark's Kafka source"
    return "an offset of another source"


def _excerpt(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS]}..."


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


PartitionId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CurrentOffsets:
    """The brokers' current offsets of every partition of a query."""

    topic_ids: Mapping[str, str]
    earliest: Offsets
    latest: Offsets
    """The readable end: last stable offset (read_committed) or high watermark."""
