"""The tail of a table is read of the table's topic only: never of one that has its name now."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.client.blocking.record_client import ReplacedTopicError
from unit.spark.test_planner import FakeBrokers, Log, World

TAIL = {"subscribe": "a", "headwater.topic.id": "former", "startingOffsets": '{"a":{"0":30}}'}


def tail(topic_id: str) -> Any:
    brokers = FakeBrokers(a=Log(topic_id, (0, 50)))
    return World(TAIL, brokers, streaming=False).planner.batch()


def test_the_same_topic_is_read_from_the_tables_end() -> None:
    assert tail("former").start == {("a", 0): 30}


def test_another_topic_of_the_name_is_refused_though_it_has_these_offsets() -> None:
    words = r"topic a was deleted and created again \(id former, now present\)"
    with pytest.raises(ReplacedTopicError, match=words):
        tail("present")
