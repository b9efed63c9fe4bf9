"""The negative control: the proof must find the faults in damaged copies of a table.

Three copies of the weather table have one fault each: a row dropped, a row doubled, a byte flipped.
The copies are ordinary Delta tables; `judge` compares them as it compares the real one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from flights.proof import Verdict, judge
from flights.readers import by_spark_delta
from flights.records import Feed

Damage = Callable[[DataFrame, Column], DataFrame]


@dataclass(frozen=True)
class Control:
    """One planted fault, and whether the verdict has exactly this fault."""

    fault: str
    verdict: Verdict
    is_named: bool


def _drop(rows: DataFrame, target: Column) -> DataFrame:
    return rows.where(~target)


def _double(rows: DataFrame, target: Column) -> DataFrame:
    return rows.unionByName(rows.where(target))


def _flip(rows: DataFrame, target: Column) -> DataFrame:
    # The last byte of the JSON is a brace; with another byte the id is still readable.
    flipped = f.concat(f.expr("substring(value, 1, length(value) - 1)"), f.lit(b"\x7f"))
    return rows.withColumn("value", f.when(target, flipped).otherwise(f.col("value")))


FAULTS: tuple[tuple[str, Damage, str], ...] = (
    ("a row dropped", _drop, "missing"),
    ("a row doubled", _double, "duplicate"),
    ("a byte flipped", _flip, "altered"),
)
COUNTED = ("missing", "duplicate", "altered")


def run_controls(spark: SparkSession, table_uri: str, feed: Feed, scratch: Path) -> list[Control]:
    """Plant each fault in the middle row of a copy of the table, and judge the copy."""
    rows = spark.read.format("delta").load(table_uri)
    target = f.col("value") == f.lit(feed.values[len(feed) // 2])
    controls = []
    for fault, damage, expected in FAULTS:
        copy = scratch / fault.replace(" ", "-")
        shutil.rmtree(copy, ignore_errors=True)
        damage(rows, target).write.format("delta").save(str(copy))
        verdict = judge(
            fault, "Delta by Spark", by_spark_delta(spark, feed.topic, str(copy)), [feed]
        )
        controls.append(Control(fault, verdict, _names(verdict, expected)))
        shutil.rmtree(copy)
    return controls


def _names(verdict: Verdict, expected: str) -> bool:
    """True when the verdict counts one fault of the expected kind and no other."""
    return all(getattr(verdict, kind) == (1 if kind == expected else 0) for kind in COUNTED)


def all_named(controls: Sequence[Control]) -> bool:
    """True when every planted fault was found with its kind."""
    return len(controls) == len(FAULTS) and all(c.is_named for c in controls)
