"""`groups reset-offsets` to versions of tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.cli.table_versions import offsets_of_versions
from headwater.client.values import TopicPartition
from headwater.errors import UsageError

ROWS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2)]
TWO = [*ROWS, TopicPartition("b", 0)]
NOON = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
ADMIN: Any = None


def ends(_admin: object, topic: str, at: int | dt.datetime) -> Mapping[int, int]:
    assert at in (7, NOON)
    return {"a": {0: 50, 1: 5}, "b": {0: 9}}[topic]


def test_a_group_starts_at_the_first_offset_after_the_version() -> None:
    found = offsets_of_versions(ADMIN, ROWS, 7, ends)
    assert found == {ROWS[0]: 50, ROWS[1]: 5}, "partition 2 was not in that version"


def test_a_time_is_for_any_number_of_topics_a_version_for_one() -> None:
    assert offsets_of_versions(ADMIN, TWO, NOON, ends)[TWO[-1]] == 9
    with pytest.raises(UsageError, match="name one topic, not a, b"):
        offsets_of_versions(ADMIN, TWO, 7, ends)
