"""`headwater_spark.check(spark)`: checks that every executor can run Headwater's tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError
from headwater_spark.connect_session import parallelism
from headwater_spark.executor_probe import probe

PROBES_PER_SLOT = 2


class NotReadyError(HeadwaterError):
    """An executor lacks a package or has another version; the message names both and a remedy."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The results of all probes, one per host and Python."""

    driver: dict[str, Any]
    executors: tuple[dict[str, Any], ...]
    problems: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """True when no executor has a problem."""
        return not self.problems


def check(spark: SparkSession, *, raise_on_problem: bool = True) -> CheckReport:
    """Probe every executor. Raises NotReadyError unless `raise_on_problem` is false."""
    driver = probe()
    slots = parallelism(spark) * PROBES_PER_SLOT
    rows = spark.range(0, slots, 1, slots).mapInArrow(_probe_task, "found STRING").collect()
    distinct = {row.found: json.loads(row.found) for row in rows}
    executors = tuple(distinct[key] for key in sorted(distinct))
    report = CheckReport(driver, executors, tuple(_problems(driver, executors)))
    if raise_on_problem and not report.ok:
        raise NotReadyError("; ".join(report.problems))
    return report


def _probe_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            found = json.dumps(probe(), sort_keys=True)
            yield pa.record_batch([pa.array([found] * batch.num_rows)], names=["found"])


def _problems(driver: dict[str, Any], executors: tuple[dict[str, Any], ...]) -> Iterator[str]:
    for found in executors:
        where = f"executor on {found['host']} ({found['python']})"
        for name, error in found["missing"].items():
            yield (
                f"{where} cannot import {name}: {error}. Install headwater with its"
                " extra spark there, or ship a packed environment with spark.archives and"
                " spark.pyspark.python"
            )
        if found["headwater"] != driver["headwater"]:
            yield (
                f"{where} has headwater {found['headwater']}, the driver {driver['headwater']}:"
                " install the same version"
            )
