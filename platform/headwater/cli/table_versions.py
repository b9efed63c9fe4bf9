"""`groups reset-offsets` to a version of a topic's Delta table, which another package reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from headwater.client.admin.client import Admin
from headwater.client.values import TopicPartition
from headwater.errors import UsageError
from headwater.extras import install_hint

TARGET_GROUP = "headwater.offset_targets"
TARGET = "delta"

EndsAt = Callable[[Admin, str, int | dt.datetime], Mapping[int, int]]
"""(admin, topic, version or time) -> the table's end by partition."""


def offsets_of_versions(
    admin: Admin,
    rows: list[TopicPartition],
    at: int | dt.datetime,
    ends_at: EndsAt | None = None,
) -> dict[TopicPartition, int]:
    """The first offset after each topic's version; partitions that it does not have are left out.

    Raises UsageError: for several topics and one version number, without the libraries of tables.
    """
    topics = sorted({tp.topic for tp in rows})
    if isinstance(at, int) and len(topics) > 1:
        raise UsageError(
            f"--to-delta-version {at}: each table has its own versions: name one topic, not"
            f" {', '.join(topics)}; or give --to-delta-timestamp"
        )
    read = ends_at or _registered()
    ends = {topic: read(admin, topic, at) for topic in topics}
    return {tp: ends[tp.topic][tp.partition] for tp in rows if tp.partition in ends[tp.topic]}


def _registered() -> EndsAt:
    for entry in entry_points(group=TARGET_GROUP, name=TARGET):
        try:
            found: EndsAt = entry.load()
        except ImportError as error:
            raise UsageError(f"{error}: {install_hint('tier')}") from error
        return found
    raise UsageError(f"versions of tables cannot be read: {install_hint('tier')}")
