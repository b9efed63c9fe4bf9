"""The share source's offsets in Spark's offset log: what a micro-batch has acquired. Pure.

`{"acquired":{topic:{"0":[[first,last],...]}},"batch":n,"share":group,"topics":{name:id},"v":1}`,
with holds also `"owner"`, and version 2. The first batch of a query with holds is empty: it brings
the owner's name into the checkpoint before the owner holds anything. A batch is planned from its
own offset alone, so that one that Spark repeats after a failure reads the same records, whoever
holds their locks by then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.errors import UsageError

FORMAT_VERSION = 1
HOLDS_VERSION = 2
"""Of offsets whose records an owner holds."""
Ranges = list[tuple[int, int]]
"""Offsets, first to last."""
_FIELDS = {"acquired", "batch", "share", "topics", "v"}
_HOLDS_FIELDS = {*_FIELDS, "owner"}
_EXCERPT_CHARS = 200


@dataclass(frozen=True, slots=True)
class ShareBatch:
    """What one micro-batch has acquired for a share group."""

    group: str
    number: int
    """From 1 on; batch 0 is the one before the first."""
    acquired: Mapping[tuple[str, int], Ranges]
    topic_ids: Mapping[str, str]
    """Topic -> its id in Kafka's base64 form."""
    owner: str = ""
    """Who holds the records; empty: their locks alone do."""

    def to_json(self) -> dict[str, Any]:
        """The offset for Spark, in the one key order: its text is compared."""
        acquired: dict[str, dict[str, list[list[int]]]] = {}
        for (topic, partition), ranges in sorted(self.acquired.items()):
            acquired.setdefault(topic, {})[str(partition)] = [list(row) for row in ranges]
        found: dict[str, Any] = {
            "acquired": acquired,
            "batch": self.number,
            "owner": self.owner,
            "share": self.group,
            "topics": dict(sorted(self.topic_ids.items())),
            "v": HOLDS_VERSION,
        }
        if not self.owner:
            del found["owner"]
            found["v"] = FORMAT_VERSION
        return found

    def holds(self, topic: str, partition: int, offset: int) -> bool:
        """True for a record of this batch."""
        ranges = self.acquired.get((topic, partition), ())
        return any(first <= offset <= last for first, last in ranges)


def nothing_yet(group: str) -> ShareBatch:
    """The offset before the first batch."""
    return ShareBatch(group, 0, {}, {})


def from_json(value: object, group: str) -> ShareBatch:
    """Parse an offset of a checkpoint. Raises UsageError for that of another source or group."""
    kinds = ((_FIELDS, FORMAT_VERSION), (_HOLDS_FIELDS, HOLDS_VERSION))
    if not isinstance(value, Mapping) or (set(value), value.get("v")) not in kinds:
        text = json.dumps(value)[:_EXCERPT_CHARS]
        raise UsageError(
            f"the checkpoint holds an offset that no share source of this version wrote: {text}."
            " Start this query with a checkpoint of its own"
        )
    if value["share"] != group:
        raise UsageError(
            f"the checkpoint is of share group {value['share']!r}, the query is of {group!r}: give"
            " each group's query a checkpoint of its own"
        )
    return ShareBatch(
        group,
        int(value["batch"]),
        {
            (topic, int(partition)): [(int(first), int(last)) for first, last in ranges]
            for topic, partitions in value["acquired"].items()
            for partition, ranges in partitions.items()
        },
        {str(name): str(topic_id) for name, topic_id in value["topics"].items()},
        str(value.get("owner", "")),
    )


def ranges_of(offsets: Iterable[int]) -> Ranges:
    """Neighbouring offsets as ranges."""
    ranges: Ranges = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] + 1 == offset:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return ranges


def ranges_by_partition(rows: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int], Ranges]:
    """Topic, partition and offset of each record as ranges per partition."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in rows:
        offsets.setdefault((topic, partition), []).append(offset)
    return {place: ranges_of(found) for place, found in offsets.items()}


def from_offset(ranges: Ranges, start: int) -> Ranges:
    """What of the ranges is at `start` or behind it."""
    return [(max(first, start), last) for first, last in ranges if last >= start]


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """What of the ranges is in none of `taken`. Both are in offset order."""
    left: Ranges = []
    for first, last in ranges:
        for begin, end in taken:
            if end < first or begin > last:
                continue
            if begin > first:
                left.append((first, begin - 1))
            first = end + 1
        if first <= last:
            left.append((first, last))
    return left
