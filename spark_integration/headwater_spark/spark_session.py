"""A Spark session that has what Headwater needs: Python, Delta, Arrow.

    spark = headwater_spark.session("local[2]")

or, on a builder of one's own: `headwater_spark.configure(builder).getOrCreate()`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError
from headwater_spark.jars import delta_jars

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
FEW_CORES = {"spark.databricks.delta.snapshotPartitions": "2"}
"""For masters of one machine. Delta's own 50 tasks per look at a table's log were more than half of
all CPU time of streaming queries that write small batches."""
STDERR = 2
STACK_LINE = re.compile(r"\s+(at |\.\.\. \d+ )")
FROM_WORKER = "An exception was thrown from the Python worker:"
ARROW_BATCH_ROWS = 65_536
"""Rows per Arrow batch into the sink: Spark's 10,000 would cost more per row."""


class SparkStartError(HeadwaterError):
    """Spark did not start."""


class SparkJobError(HeadwaterError):
    """A Spark job of ours failed; another one may succeed."""


class SparkGoneError(HeadwaterError):
    """The session's Spark has ended: no job of it runs any more."""


def configure(
    builder: Any, *, delta: bool = True, ivy_cache: str | None = None, app_name: str = "headwater"
) -> Any:
    """The builder with everything set that is not set by the caller afterwards.

    `delta=False` leaves Delta's jars out, for sources and sinks without tables. `ivy_cache` is
    where the jars are kept; default `$HEADWATER_JARS` or ~/.cache/headwater/jars.
    """
    # Spark asks this Python for data sources, once per JVM; without it the system's python is used.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        builder.appName(app_name)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH_ROWS))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.speculation", "false")
    )
    if delta:
        builder = (
            builder.config("spark.jars", ",".join(str(path) for path in delta_jars(ivy_cache)))
            .config("spark.sql.extensions", DELTA_EXTENSION)
            .config("spark.sql.catalog.spark_catalog", DELTA_CATALOG)
        )
    return builder


def session(
    master: str = "local[*]",
    *,
    delta: bool = True,
    ivy_cache: str | None = None,
    app_name: str = "headwater",
    conf: dict[str, str] | None = None,
    log: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A running session. `conf` wins over what `configure` sets.

    `log`: a file for what Spark's JVM, if this starts it, writes on stderr for as long as it lives.
    Raises SparkStartError, with the JVM's last words, when that was given and Spark does not start.
    """
    builder = configure(
        SparkSession.builder.master(master), delta=delta, ivy_cache=ivy_cache, app_name=app_name
    )
    chosen = {**(FEW_CORES if delta and master.startswith("local") else {}), **(conf or {})}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    if log is None:
        return _get_or_create(builder)
    try:
        with stderr_into(log):
            return _get_or_create(builder)
    except (PySparkException, Py4JError) as error:
        # What Java threw comes here when Java answered, else it is in what it wrote.
        said = str(error) if isinstance(error, Py4JError) else Path(log).read_text(errors="replace")
        text = f"Spark did not start on {master}; its last words: {last_words(said)} (log: {log})"
        raise SparkStartError(text) from error


def last_words(said: str) -> str:
    """The last line of a JVM's output that is not of a stack trace; "none" when it is silent."""
    lines = [line for line in said.splitlines() if line.strip() and not STACK_LINE.match(line)]
    return lines[-1].strip().removeprefix(": ") if lines else "none"


def _get_or_create(builder: Any) -> SparkSession:
    spark: SparkSession = builder.getOrCreate()
    return spark


@contextmanager
def job_errors(spark: SparkSession, what: str) -> Iterator[None]:
    """Around a job on the driver. Raises SparkJobError or SparkGoneError, of one line each."""
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        if has_ended(spark):
            raise SparkGoneError(f"{what}: Spark has ended: start anew") from error
        raise SparkJobError(f"{what}: {cause(str(error))}") from error


def has_ended(spark: SparkSession) -> bool:
    """True when the session's context is stopped, or its JVM gone."""
    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return True


def cause(said: str) -> str:
    """Why a job failed, of what Spark says: a Python worker's error without its traceback, or the
    line in which Java names its own."""
    _, of_python, text = said.partition(FROM_WORKER)
    if of_python:
        lines = text.strip().splitlines()
        frames = [n for n, line in enumerate(lines) if line.startswith((" ", "Traceback "))]
        return " ".join(lines[frames[-1] + 1 if frames else 0 :])
    java = [line for line in said.splitlines() if line.startswith(": ")]
    return (java[0].removeprefix(": ") if java else said).strip()


@contextmanager
def stderr_into(path: str | os.PathLike[str]) -> Iterator[None]:
    """Processes that are started meanwhile write on `path` what they write on stderr.

    pyspark offers no other way, and no setting of the JVM's keeps its own warnings back.
    """
    saved = os.dup(STDERR)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, STDERR)
    os.close(file)
    try:
        yield
    finally:
        os.dup2(saved, STDERR)
        os.close(saved)
