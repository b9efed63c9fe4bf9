"""Options of SQL tables: stored in a column's metadata, shared by readers and writers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headwater.errors import UsageError
from headwater_spark.source.data_source import HeadwaterDataSource
from headwater_spark.source.sql_tables import options_in, table_schema
from headwater_spark.source.table_options import (
    created_options,
    sink_given,
    source_given,
    without_read_only,
)

SERVERS = "kafka.bootstrap.servers"


def properties(**options: str) -> dict[str, str]:
    """What Spark passes for CREATE TABLE ... OPTIONS (options)."""
    rows = {SERVERS: "h:1", **options}
    return {"provider": "headwater", "owner": "root", "comment": "c", **rows} | {
        f"option.{name}": value for name, value in rows.items()
    }


def test_a_created_tables_schema_brings_its_options_back() -> None:
    schema = table_schema(False, properties(subscribe="a"))
    assert isinstance(schema, StructType)
    assert [f.simpleString() for f in schema] == [
        "key:binary",
        "value:binary",
        "topic:string",
        "partition:int",
        "offset:bigint",
        "timestamp:timestamp",
        "timestampType:int",
    ]
    passed = StructType.fromJson(schema.jsonValue())
    assert options_in(passed) == {SERVERS: "h:1", "subscribe": "a"}
    without = StructType([field for field in passed if field.name != "offset"])
    assert options_in(without) is None, "a DataFrame made from a table is not the table"


def test_only_create_table_gets_a_schema_with_options() -> None:
    read = HeadwaterDataSource({SERVERS: "h:1", "subscribe": "a"}).schema()
    assert isinstance(read, str)
    created = HeadwaterDataSource(properties(subscribe="a", includeHeaders="true")).schema()
    assert isinstance(created, StructType) and created.names[-1] == "headers"


def test_each_side_gets_its_options_and_the_statements_win() -> None:
    stored = {SERVERS: "h:1", "subscribe": "a", "minpartitions": "2", "kafka.acks": "all"}
    assert source_given(stored, {"minPartitions": "4"}) == {
        SERVERS: "h:1",
        "subscribe": "a",
        "minpartitions": "4",
    }
    assert sink_given(stored, {}) == {SERVERS: "h:1", "kafka.acks": "all", "topic": "a"}
    assert source_given({SERVERS: "h:1", "topic": "a"}, {})["subscribe"] == "a"
    assert "topic" not in sink_given({SERVERS: "h:1", "subscribe": "a,b"}, {})
    assert sink_given({SERVERS: "h:1", "subscribe": "a", "topic": "b"}, {})["topic"] == "b"


def test_a_table_without_options_names_the_remedy() -> None:
    for side in (source_given, sink_given):
        with pytest.raises(UsageError, match="created without columns"):
            side(None, {})
    assert source_given(None, {SERVERS: "h:1"}) == {SERVERS: "h:1"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribbe": "a"}, "did you mean 'subscribe'"),
        ({"subscribe": "a", "kafka.acks": "1"}, "kafka.acks"),
        ({"subscribe": "a", "startingoffsets": "first"}, "startingOffsets"),
        ({"subscribe": "a", "headwater.storage.key": "k"}, "may be a secret"),
        ({}, "exactly one"),
    ],
)
def test_wrong_options_are_refused_at_create_table(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        created_options(properties(**options))


def test_options_of_one_kind_of_read_are_right_for_a_table() -> None:
    for options in ({"startingoffsets": "latest"}, {"endingoffsets": '{"a":{"0":5}}'}):
        assert created_options(properties(subscribe="a", path="/x", **options))["subscribe"] == "a"


def test_an_insert_leaves_the_columns_of_the_brokers_null() -> None:
    columns = {"value": [b"v"], "offset": [None], "timestamp": [None], "timestampType": [None]}
    (sent,) = without_read_only([pa.RecordBatch.from_pydict(columns)])
    assert sent.to_pydict() == {"value": [b"v"]}
    with pytest.raises(UsageError, match="brokers set column 'offset'"):
        list(without_read_only([pa.RecordBatch.from_pydict({**columns, "offset": [7]})]))
