"""Options of a stream with `shareGroup`: a queue source (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import UsageError
from headwater_spark.source.source_options import SourceOptions, source_options

SHARE_GROUP = "shareGroup"
_BY_GROUP = "a share group says where it begins: set share.auto.offset.reset of the group"
_NO_TABLE = "a share group reads what its leaders have acquired for it"
_REFUSED = {
    "startingOffsets": _BY_GROUP,
    "startingTimestamp": _BY_GROUP,
    "startingOffsetsByTimestamp": _BY_GROUP,
    "startingOffsetsByTimestampStrategy": _BY_GROUP,
    "fromDeltaVersion": _BY_GROUP,
    "fromTimestamp": _BY_GROUP,
    "endingOffsets": "a stream has no end",
    "endingTimestamp": "a stream has no end",
    "endingOffsetsByTimestamp": "a stream has no end",
    "subscribePattern": "name the topics with subscribe",
    "assign": "the group's coordinator assigns: name the topics with subscribe",
    "minOffsetsPerTrigger": "the locks of acquired records would time out",
    "maxTriggerDelay": "the locks of acquired records would time out",
    "maxBytesPerTrigger": "give maxOffsetsPerTrigger",
    "minPartitions": "the tasks are the partitions with acquired records",
    "maxRecordsPerPartition": "the tasks are the partitions with acquired records",
    "pushdown": _NO_TABLE,
    "headwater.use.table": _NO_TABLE,
    "headwater.tables.uri": _NO_TABLE,
    "kafka.isolation.level": "set share.isolation.level of the group",
    "kafka.group.id": "shareGroup names the group",
}
"""Options of the other sources that do not fit, and why or what takes their place."""
DEFAULT_MAX_RECORDS = 10_000
"""Per trigger. The groups' limits of locks per partition, 2,000 by default, hold too."""


DELIVERY = "headwater.delivery"
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """A share source's checked options. Picklable; travels to tasks."""

    group: str
    source: SourceOptions
    max_records: int
    delivery: str = EXACTLY_ONCE

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to read."""
        return self.source.subscription.topics


def has_share_group(given: Mapping[str, str]) -> bool:
    """True when the options are those of a share source."""
    return any(name.lower() == SHARE_GROUP.lower() for name in given)


def share_options(given: Mapping[str, str], *, streaming: bool) -> ShareOptions:
    """Parse and check the options. Raises UsageError that names the option and a remedy."""
    if not streaming:
        raise UsageError(
            f"option {SHARE_GROUP!r} is for streams: a batch read has no end of its own to"
            " acknowledge at; use readStream with trigger(availableNow=True)"
        )
    refused = {name.lower(): (name, why) for name, why in _REFUSED.items()}
    group, delivery, rest = "", EXACTLY_ONCE, {}
    for name, value in given.items():
        if name.lower() == SHARE_GROUP.lower():
            group = value.strip()
        elif name.lower() == DELIVERY:
            delivery = value.strip().lower()
        elif name.lower() in refused:
            known, why = refused[name.lower()]
            raise UsageError(f"option {known!r} does not go with {SHARE_GROUP!r}: {why}")
        else:
            rest[name] = value
    if not group:
        raise UsageError(f"option {SHARE_GROUP!r} is empty: name the share group")
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise UsageError(
            f"option {DELIVERY!r} is {delivery!r}: give {EXACTLY_ONCE!r} or {AT_LEAST_ONCE!r}"
        )
    source = source_options(rest, streaming=True)
    most = source.max_offsets_per_trigger or DEFAULT_MAX_RECORDS
    return ShareOptions(group, source, most, delivery)
