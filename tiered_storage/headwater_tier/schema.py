"""The log table's Delta protocol, properties and statistics, and their checks. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from headwater.columnar.schema import LOG_TABLE_COLUMNS, LOG_TABLE_SCHEMA
from headwater.ids import id_text
from headwater_tier.commit_fence import FileFacts

FORMAT_VERSION = 1
READER_VERSION = 1
WRITER_VERSION = 2
STATS_COLUMNS = ("partition", "offset", "timestamp", "leader_epoch")
VACUUM_RETENTION_MS = 7 * 24 * 3600 * 1000
FILE_AGE_MAX_MS = VACUUM_RETENTION_MS // 2
"""An older uncommitted file is refused: vacuum could delete it during the commit."""

REQUIRED_PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.dataSkippingStatsColumns": ",".join(STATS_COLUMNS),
}
FORBIDDEN_PROPERTIES = (
    "delta.setTransactionRetentionDuration",  # Delta would erase the fence
    "delta.enableDeletionVectors",
    "delta.columnMapping.mode",
)
UNDO = (
    "this is undone: drop the feature or set the property back (ALTER TABLE), or restore the"
    " version before"
)
"""The remedy of a problem of properties, protocol or columns: no commit of Headwater's mends it."""
EXPIRED_LOG_CLEANUP = "delta.enableExpiredLogCleanup"
"""On unless it is "false", as for deltalake."""
WRITER_FEATURES_ALLOWED = frozenset({"appendOnly", "invariants"})

TOPIC = "headwater.topic"
TOPIC_ID = "headwater.topicId"
PARTITIONS = "headwater.partitions"
FORMAT = "headwater.format"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP_US_MIN = -62_135_596_800_000_000
_TIMESTAMP_US_MAX = 253_402_300_799_999_000
"""Years 1 to 9999: the range of Delta's textual timestamps."""

__all__ = ["LOG_TABLE_COLUMNS", "LOG_TABLE_SCHEMA"]


def table_properties(topic: str, topic_id: UUID, partitions: int) -> dict[str, str]:
    """The properties of a new log table."""
    own = {
        TOPIC: topic,
        TOPIC_ID: id_text(topic_id),
        PARTITIONS: str(partitions),
        FORMAT: str(FORMAT_VERSION),
    }
    return REQUIRED_PROPERTIES | own


def properties_problem(properties: Mapping[str, str], topic_id: UUID) -> str | None:
    """The first problem in a table's properties, or None."""
    found = properties.get(TOPIC_ID)
    if found != id_text(topic_id):
        return f"it belongs to topic id {found}, not {id_text(topic_id)}"
    if properties.get(FORMAT) != str(FORMAT_VERSION):
        return f"its format is {properties.get(FORMAT)!r}, must be {FORMAT_VERSION}"
    for name, wanted in REQUIRED_PROPERTIES.items():
        if properties.get(name) != wanted:
            return f"property {name} is {properties.get(name)!r}, must be {wanted!r}"
    for name in FORBIDDEN_PROPERTIES:
        value = properties.get(name)
        if value is not None and value not in ("false", "none"):
            return f"property {name} is set to {value!r}, must be unset"
    return None


def newer_format(properties: Mapping[str, str]) -> str | None:
    """The table's format if it is newer than FORMAT_VERSION, which is no fault of the table."""
    found = properties.get(FORMAT, "")
    return found if found.isdigit() and int(found) > FORMAT_VERSION else None


def protocol_problem(
    reader: int, writer: int, reader_features: list[str] | None, writer_features: list[str] | None
) -> str | None:
    """The first problem in a table's protocol, by an allow-list of features, or None."""
    foreign = sorted(
        set(reader_features or ()) | (set(writer_features or ()) - WRITER_FEATURES_ALLOWED)
    )
    if foreign:
        return f"table features {foreign} were enabled"
    if reader > READER_VERSION or (writer > WRITER_VERSION and not writer_features):
        return f"its protocol was raised to ({reader}, {writer})"
    return None


def columns_problem(names: Sequence[str]) -> str | None:
    """What is wrong with a table's columns, or None."""
    if tuple(names) != LOG_TABLE_COLUMNS:
        return f"its columns are {list(names)}, not {list(LOG_TABLE_COLUMNS)}"
    return None


def stats_json(facts: FileFacts) -> str:
    """The statistics of an AddAction, in Delta's JSON."""
    minimum: dict[str, int | str] = {}
    maximum: dict[str, int | str] = {}
    nulls: dict[str, int] = {}
    for name, stats in facts.stats:
        nulls[name] = stats.nulls
        if stats.minimum is None or stats.maximum is None:
            continue
        if name != "timestamp":
            minimum[name], maximum[name] = stats.minimum, stats.maximum
        elif stats.minimum >= _TIMESTAMP_US_MIN and stats.maximum <= _TIMESTAMP_US_MAX:
            minimum[name] = timestamp_text(stats.minimum)
            maximum[name] = timestamp_text(stats.maximum)
    return json.dumps(
        {
            "numRecords": facts.rows,
            "minValues": minimum,
            "maxValues": maximum,
            "nullCount": nulls,
        },
        separators=(",", ":"),  # whoever opens the table parses those of all files
    )


def timestamp_text(microseconds: int) -> str:
    """`2013-01-01T05:15:00.000Z`: milliseconds, the precision of records' timestamps."""
    time = _EPOCH + timedelta(microseconds=microseconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"
