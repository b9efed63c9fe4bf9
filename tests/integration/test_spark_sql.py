"""SQL on topics: tables and views USING headwater, INSERT INTO, streams of tables, Delta beside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from headwater import Admin, Producer
from headwater.client.values import NewTopic
from headwater_spark.spark_session import DELTA_CATALOG
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60
CATALOG = "spark.sql.catalog.spark_catalog"
ROWS = 20


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    with spark_session("local[2]", delta=True, conf=warehouse) as session:
        session.conf.set(CATALOG, "builtin")
        yield session


class Sql:
    """Statements against a topic of one test, `{servers}` and `{topic}` filled in."""

    def __init__(self, spark: Any, servers: str, topic: str) -> None:
        self.spark = spark
        self.servers = servers
        self.topic = topic
        self.table = topic.replace("-", "_")[:60]

    def __call__(self, statement: str) -> list[Any]:
        names = {"servers": self.servers, "topic": self.topic, "table": self.table}
        rows: list[Any] = self.spark.sql(statement.format(**names)).collect()
        return rows

    def create(self, options: str = "subscribe '{topic}'") -> None:
        self("CREATE TABLE {table} USING headwater OPTIONS ("
             "kafka.bootstrap.servers '{servers}', " + options + ")")  # fmt: skip

    def values(self, where: str = "") -> list[str]:
        rows = self("SELECT CAST(value AS STRING) AS v FROM {table} " + where)
        return sorted(row.v for row in rows)


@pytest.fixture
def sql(spark: Any, shared_cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Sql]:
    name = re.sub("[^a-z]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    with Admin(shared_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 3)])
    with Producer(shared_cluster.bootstrap) as producer:
        for i in range(ROWS):
            producer.send(name, b"v%d" % i, key=b"k%d" % i)
    statements = Sql(spark, shared_cluster.bootstrap, name)
    yield statements
    statements("DROP TABLE IF EXISTS {table}")


EXPECTED = sorted(f"v{i}" for i in range(ROWS))


def test_a_table_is_read_by_name_and_in_every_way(sql: Sql) -> None:
    sql.create("subscribe '{topic}', startingOffsets 'earliest', kafka.compression.type 'zstd'")
    assert sql.values() == EXPECTED
    assert sql.spark.table(sql.table).count() == ROWS
    splits = sql("SELECT DISTINCT spark_partition_id() FROM {table} WITH (minPartitions = 6)")
    assert len(splits) == 6
    bounds = """WITH (startingOffsets = '{{"{topic}":{{"0":2,"1":2}}}}')"""
    assert len(sql("SELECT * FROM {table} " + bounds)) == ROWS - 4
    sql("CREATE TEMPORARY VIEW v AS SELECT CAST(key AS STRING) AS key FROM {table}")
    assert sql("SELECT min(key) AS k FROM v")[0].k == "k0"
    sql("DROP VIEW v")


def test_the_documented_statements(sql: Sql) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    (block,) = re.findall(r"```sql\n(CREATE TABLE.*?)```", page, re.DOTALL)
    block = block.replace("127.0.0.1:9092", "{servers}").replace("'flights'", "'{topic}'")
    create, per_partition, values, *inserts, view, count = block.split(";")
    sql(create)
    assert sum(row.records for row in sql(per_partition)) == ROWS
    assert len(sql(values)) == 10
    for statement in (*inserts, view):
        sql(statement)
    assert sql(count)[0].records == ROWS + 1 + 5
    sql("DROP TABLE lines")
    sql("DROP VIEW recent")


def test_insert_into_a_table_is_a_batch_write(sql: Sql) -> None:
    sql.create("topic '{topic}', includeHeaders 'true'")
    sql("INSERT INTO {table} (key, value) VALUES (X'6b', CAST('first' AS BINARY))")
    sql("INSERT INTO {table} BY NAME SELECT CAST('second' AS BINARY) AS value, 1 AS partition,"
        " array(named_struct('key', 'h', 'value', X'01')) AS headers")  # fmt: skip
    frame = sql.spark.range(3).selectExpr("CAST(concat('more', id) AS BINARY) AS value")
    frame.writeTo(sql.table).append()
    added = ["first", "more0", "more1", "more2", "second"]
    assert sql.values() == sorted([*EXPECTED, *added])
    (second,) = sql("SELECT * FROM {table} WHERE headers IS NOT NULL")
    assert second.partition == 1 and [h.key for h in second.headers] == ["h"]


def test_a_table_is_the_source_of_a_stream(sql: Sql, tmp_path: Path) -> None:
    sql.create("subscribe '{topic}', startingOffsets 'earliest'")

    def run() -> None:
        query = (
            sql.spark.readStream.table(sql.table)
            .selectExpr("CAST(value AS STRING) AS v")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(WAIT_S)

    run()
    sql("INSERT INTO {table} (value) VALUES (CAST('new' AS BINARY))")
    run()
    found = sql.spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.v for row in found) == sorted([*EXPECTED, "new"])


def test_temporary_views_read_and_write(sql: Sql) -> None:
    sql("CREATE TEMPORARY VIEW {table} USING headwater OPTIONS ("
        "kafka.bootstrap.servers '{servers}', SUBSCRIBE '{topic}')")  # fmt: skip
    sql("CREATE TEMPORARY VIEW into_topic (key STRING, value STRING) USING headwater OPTIONS ("
        "kafka.bootstrap.servers '{servers}', topic '{topic}')")  # fmt: skip
    sql("INSERT INTO into_topic VALUES ('k', 'new')")
    assert sql.values() == sorted([*EXPECTED, "new"])
    sql("DROP VIEW {table}")
    sql("DROP VIEW into_topic")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("subscribbe '{topic}'", "did you mean 'subscribe'"),
        ("subscribe '{topic}', startingOffsets 'first'", "startingOffsets"),
        ("subscribe '{topic}', kafka.acks '1'", "kafka.acks"),
        ("subscribe '{topic}', headwater.storage.secret 's'", "may be a secret"),
    ],
)
def test_wrong_options_are_refused_when_the_table_is_created(
    sql: Sql, options: str, words: str
) -> None:
    with pytest.raises(PySparkException, match=re.escape(words)):
        sql.create(options)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("INSERT INTO {table} (value, offset) VALUES (X'01', 7)", "brokers set column 'offset'"),
        ("INSERT OVERWRITE {table} (value) VALUES (X'01')", "can only be appended to"),
        ("DELETE FROM {table}", "does not support deletes"),
        ("SELECT * FROM {table} WITH (minPartitions = 'many')", "minPartitions"),
    ],
)
def test_statements_that_a_topic_cannot_serve(sql: Sql, statement: str, words: str) -> None:
    sql.create()
    with pytest.raises(PySparkException, match=words):
        sql(statement)
    assert sql.values() == EXPECTED


def test_a_table_with_columns_names_the_remedy(sql: Sql) -> None:
    """Spark asks no data source about such a table, and passes none of its options."""
    sql("CREATE TABLE {table} (value BINARY) USING headwater OPTIONS ("
        "kafka.bootstrap.servers '{servers}', subscribe '{topic}')")  # fmt: skip
    with pytest.raises(PySparkException, match="created without columns"):
        sql("SELECT * FROM {table}")
    options = "WITH (`kafka.bootstrap.servers` = '{servers}', subscribe = '{topic}')"
    assert sql.values(options) == EXPECTED


def test_with_deltas_catalog_tables_need_sparks_own_and_join_delta_tables(sql: Sql) -> None:
    sql.spark.conf.set(CATALOG, DELTA_CATALOG)
    try:
        sql("CREATE TABLE IF NOT EXISTS names USING delta AS SELECT 'k1' AS key, 'one' AS name")
        sql.create()
        with pytest.raises(PySparkException, match="not a valid Spark SQL Data Source"):
            sql("SELECT * FROM {table}")
    finally:
        sql.spark.conf.set(CATALOG, "builtin")
    sql("INSERT INTO names VALUES ('k2', 'two')")
    rows = sql("SELECT name, CAST(value AS STRING) AS v FROM {table} JOIN names"
               " ON CAST({table}.key AS STRING) = names.key ORDER BY v")  # fmt: skip
    assert [tuple(row) for row in rows] == [("one", "v1"), ("two", "v2")]
    sql("DROP TABLE names")
