"""The arguments of `exactly_once`, checked where the query is defined."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql import DataFrame

import headwater_spark
from headwater.errors import UsageError
from headwater_spark.sink.delta_decision import Append, Merge, update_and_insert
from headwater_spark.sink.exactly_once import EpochWrites

ROWS = cast(DataFrame, object())


def batch(_df: DataFrame, _epoch: int, _tx: EpochWrites) -> None:
    """Writes nothing."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sink_id": "a b"}, "headwater.sink.id"),
        ({"options": {"kafka.acks": "0"}}, "kafka.acks"),
        ({"options": {"compresion": "zstd"}}, "unknown option"),
        ({"bootstrap_servers": ""}, "bootstrap"),
    ],
)
def test_bad_arguments_are_refused_before_the_query_starts(
    options: dict[str, object], words: str
) -> None:
    arguments = {"bootstrap_servers": "127.0.0.1:9092", "table": "/t", **options}
    with pytest.raises(UsageError, match=words):
        headwater_spark.exactly_once(batch, **arguments)


def test_the_writes_that_a_batch_names() -> None:
    tx = EpochWrites(3)
    tx.delta(ROWS, partition_by=["day"], mergeSchema="true")
    tx.topic(ROWS, "alerts")
    tx.topic(ROWS, **{"kafka.compression.type": "zstd"})
    assert tx.table_write == Append(ROWS, ("day",), {"mergeSchema": "true"})
    assert tx.topic_writes == [
        (ROWS, {"topic": "alerts"}),
        (ROWS, {"kafka.compression.type": "zstd"}),
    ]


def test_a_merge_updates_and_inserts_by_default() -> None:
    tx = EpochWrites(3)
    tx.merge(ROWS, "target.id = source.id")
    expected = Merge(ROWS, "target.id = source.id", update_and_insert, ("target", "source"))
    assert tx.table_write == expected
    with pytest.raises(UsageError, match="two commits, to two tables or to one"):
        tx.delta(ROWS)


@pytest.mark.parametrize("name", ["txnAppId", "txnVersion", "userMetadata"])
def test_options_that_carry_the_decision_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        EpochWrites(3).delta(ROWS, **{name: "1"})
