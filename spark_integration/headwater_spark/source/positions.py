"""The source's offsets as Spark logs them: JSON whose text is compared, byte for byte. Pure.

`{"from":{topic:{"0":n}},"to":{...},"topics":{name:id},"v":1}`: keys sorted, no clocks in it. Spark
logs only end offsets, so each one carries its own start: a batch is planned from `from` and `to` of
its end alone, and a restart can't resolve "latest" anew and skip rows. Spark takes two offsets for
equal only if their JSON texts are equal, so when nothing is new the start goes back as it came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from headwater.errors import UsageError

FORMAT_VERSION = 1
INITIAL: dict[str, Any] = {"initial": True, "v": FORMAT_VERSION}
"""What a query starts from, before its first batch pins real offsets."""

_FIELDS = {"from", "to", "topics", "v"}

Offsets = Mapping[tuple[str, int], int]
"""(topic, partition) -> offset."""


@dataclass(frozen=True, slots=True)
class Position:
    """One micro-batch: rows [start, end) of each partition, and the ids of the topics meant."""

    start: Offsets
    end: Offsets
    topic_ids: Mapping[str, str]
    """Topic -> Kafka's text of its id; another id is another topic of that name."""

    def to_json(self) -> dict[str, Any]:
        """As a dict in the one key order whose text is compared."""
        return {
            "from": offsets_to_json(self.start),
            "to": offsets_to_json(self.end),
            "topics": dict(sorted(self.topic_ids.items())),
            "v": FORMAT_VERSION,
        }

    def text(self) -> str:
        """The compact JSON text, as in a checkpoint file."""
        return json.dumps(self.to_json(), separators=(",", ":"))


def is_initial(value: Mapping[str, Any]) -> bool:
    """True for the constant that stands for "nothing read yet"."""
    return bool(value.get("initial"))


def is_position(value: object) -> TypeGuard[Mapping[str, Any]]:
    """True for an offset that this module wrote; False for the initial one and other sources'."""
    return isinstance(value, Mapping) and value.keys() == _FIELDS and value["v"] == FORMAT_VERSION


def from_json(value: Mapping[str, Any]) -> Position:
    """A logged offset. Raises UsageError on another format: a checkpoint of some other source."""
    version = value.get("v")
    if version != FORMAT_VERSION:
        raise UsageError(
            f"the checkpoint's offset has format {version!r}; this Headwater reads"
            f" {FORMAT_VERSION}. If a newer Headwater wrote it, run the query with that one; if"
            " another source did, give the query a checkpoint of its own"
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
