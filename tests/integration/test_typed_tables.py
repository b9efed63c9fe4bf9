"""Derived tables as users read them: Spark, deltalake, DuckDB and polars agree on the rows."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import polars
import pytest
from deltalake import DeltaTable

import headwater_spark
from headwater import Admin, Producer
from headwater.cli.main import main
from headwater.client.values import NewTopic
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.names import Kind, derived
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session
from integration.spark_topics import WAIT_S, Topic
from typed_topic import TypedTopic

pytestmark = pytest.mark.integration

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "u", "type": "double"}, {"name": "name", "type": "string"}],
}
PROTO = 'syntax = "proto3"; message Counted { uint64 n = 1; }'


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", delta=True) as session:
        yield session


def engines(spark: Any, uri: str, columns: Sequence[str]) -> list[list[tuple[Any, ...]]]:
    """The rows of a table as each engine sees them."""
    table = DeltaTable(uri)
    names = ", ".join(f'"{name}"' for name in columns)
    by_spark = spark.read.format("delta").load(uri).select(*columns).collect()
    by_deltalake = table.to_pyarrow_table(columns=list(columns)).to_pylist()
    files = table.file_uris()
    by_duckdb = duckdb.sql(f"select {names} from read_parquet({files})").fetchall()
    by_polars = polars.read_delta(uri).select(columns).rows()
    found = [
        [tuple(row) for row in by_spark],
        [tuple(row[name] for name in columns) for row in by_deltalake],
        by_duckdb,
        by_polars,
    ]
    return [sorted((_comparable(row) for row in rows), key=repr) for rows in found]


def _comparable(row: Sequence[Any]) -> tuple[Any, ...]:
    """NaN as text, as it equals nothing; bytearrays of Spark as bytes."""
    plain = (bytes(v) if isinstance(v, bytearray) else v for v in row)
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in plain)


def agreed(spark: Any, uri: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    first, *others = engines(spark, uri, columns)
    for other in others:
        assert other == first
    return first


def followed(folder: Path, topic: TypedTopic) -> tuple[str, str]:
    """The URIs of the typed and of the quarantine table."""
    topic.tier()
    result = topic.follow(decoder_for=decoder_for)
    assert (result.problem, result.quarantine_problem) == ("", "")
    kinds = (Kind.TYPED, Kind.QUARANTINE)
    typed, quarantine = (derived(topic.location, kind).place.uri for kind in kinds)
    return typed, quarantine


def test_engines_agree_on_nan_and_no_filter_loses_it(spark: Any, tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, topic="readings")
    topic.configs = {"headwater.value.format": "avro", "headwater.value.schema": json.dumps(AVRO)}
    for number in (1.5, math.nan, 2.5, math.inf):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, {"u": number, "name": str(number)})
        topic.produce(0, out.getvalue())
    typed, _ = followed(tmp_path, topic)
    rows = agreed(spark, typed, ["offset", "u", "name"])
    assert [row[1] for row in rows] == [1.5, "NaN", 2.5, math.inf]
    frame = spark.read.format("delta").load(typed)
    assert [r.name for r in frame.where("u > 10").orderBy("offset").collect()] == ["nan", "inf"]
    assert polars.scan_delta(typed).filter(polars.col("u") > 10).collect().height == 2


def test_engines_agree_on_what_json_cannot_say_for_sure(spark: Any, tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, topic="nasty")
    topic.produce(
        0,
        {"n": 1, "s": "x"},
        b'{"n": %s}' % (b"9" * 45),
        b'{"s": "a", "s": "b"}',
        b'{"s": "\xff"}',
        b'{"n": 18446744073709551615}',
        b'{"n": NaN}',
        {"n": 2, "S": "other case"},
    )
    typed, quarantine = followed(tmp_path, topic)
    good = agreed(spark, typed, ["offset", "n", "s"])
    bad = agreed(spark, quarantine, ["offset", "reason", "value"])
    assert good[0] == (0, 1, "x")
    assert {row[0] for row in good} | {row[0] for row in bad} == set(range(7))
    reasons = {row[0]: row[1] for row in bad}
    assert [reasons[n] for n in range(1, 6)] == [
        "out of range",
        "duplicate key",
        "malformed",
        "out of range",
        "malformed",
    ]


def test_engines_agree_on_unsigned_numbers_above_bigint(spark: Any, tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, topic="counted")
    topic.configs = {"headwater.value.format": "protobuf", "headwater.value.schema": PROTO}
    topic.produce(0, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08\x05")
    typed, _ = followed(tmp_path, topic)
    assert agreed(spark, typed, ["offset", "n"]) == [
        (0, Decimal(2**64 - 1)),
        (1, Decimal(5)),
    ]


def test_spark_reads_a_variant_by_path(spark: Any, tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, topic="free")
    topic.configs["headwater.typed.variant"] = "true"
    digits = "9" * 30
    topic.produce(0, {"a": {"b": [1, "x"]}}, b'{"n": %s}' % digits.encode(), None, b"{broken")
    typed, quarantine = followed(tmp_path, topic)
    frame = spark.read.format("delta").load(typed).orderBy("offset")
    rows = frame.selectExpr(
        "variant_get(value, '$.a.b[1]', 'string') as b",
        "variant_get(value, '$.n', 'decimal(38,0)') as n",
        "value is null as missing",
    ).collect()
    assert [tuple(row) for row in rows] == [
        ("x", None, False),
        (None, Decimal(digits), False),
        (None, None, True),
    ]
    assert spark.read.format("delta").load(quarantine).count() == 1


def test_a_declared_topic_is_read_as_columns_by_one_line(
    spark: Any, shared_cluster: LocalCluster
) -> None:
    servers, name = shared_cluster.bootstrap, "typed-orders"
    configs = {"headwater.value.format": "json", "headwater.latest.enable": "true"}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, 3, 3, configs=configs)])
    with Producer(servers) as producer:
        for n in range(100):
            producer.send(name, json.dumps({"n": n}).encode(), key=b"k%d" % (n % 10))
        producer.send(name, b"{broken", key=b"k1").result(WAIT_S)
        producer.flush()
    Topic(spark, servers, name).tier()
    state = tier_json(servers, "typed", name, "--follow")
    assert (state["rows"], state["quarantined"], state["behind"]) == (100, 1, 0)
    assert state["latest_rows"] == 10
    typed, bad, latest = (
        headwater_spark.table(spark, name, bootstrap_servers=servers, kind=kind)
        for kind in ("typed", "quarantine", "latest")
    )
    assert typed.agg({"n": "sum"}).collect()[0][0] == sum(range(100))
    assert [bytes(row.value) for row in bad.collect()] == [b"{broken"]
    assert sorted(row.n for row in latest.collect()) == list(range(90, 100))
    assert tier_json(servers, "replay", name) == {
        "topic": name,
        "admitted": 0,
        "known": 0,
        "left": 1,
    }
    assert tier_json(servers, "retype", name)["generation"] == 2
    derived_tables = command_json(servers, "verify", name, "--deep")["derived"]
    assert sum(row["typed_rows"] for row in derived_tables["partitions"]) == 100
    assert (derived_tables["generation"], derived_tables["latest_differing"]) == (2, 0)


def tier_json(servers: str, *arguments: str) -> Any:
    """The JSON of a `headwater tier` command."""
    return command_json(servers, "tier", *arguments)


def command_json(servers: str, *arguments: str) -> Any:
    """The JSON of a command that finds nothing wrong."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = main([*arguments, "--bootstrap-server", servers, "--json"])
    assert code == 0
    return json.loads(out.getvalue())
