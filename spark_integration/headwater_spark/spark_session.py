"""Spark sessions configured for Headwater: Python interpreter, Delta, Arrow batches.

    spark = headwater_spark.session("local[2]")

or, on a builder of the caller's: `headwater_spark.configure(builder).getOrCreate()`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError
from headwater_spark.connect_session import is_connect
from headwater_spark.jars import cache_folder, delta_jars
from headwater_spark.masters import local_master
from headwater_spark.running_jvm import RunningJvm, running_jvm

MASTER_DEFAULT = "local[*]"
JARS_KEY = "spark.jars"
EXTENSIONS_KEY = "spark.sql.extensions"
CATALOG_KEY = "spark.sql.catalog.spark_catalog"
SHUFFLE_KEY = "spark.sql.shuffle.partitions"
ADAPTIVE_KEY = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
SPARKS_SHUFFLE_PARTITIONS = "200"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
FEW_CORES = {"spark.databricks.delta.snapshotPartitions": "2"}
"""For masters of one machine. Delta's default of 50 tasks to read a table's log was more than half
of all CPU time of streaming queries that write small batches."""
ARROW_BATCH_ROWS = 65_536
"""Rows per Arrow batch into the sink: Spark's 10,000 would cost more per row."""
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
}
STDERR = 2
STACK_LINE = re.compile(r"\s+(at |\.\.\. \d+ )")
FROM_WORKER = "An exception was thrown from the Python worker:"


class SparkStartError(HeadwaterError):
    """Spark did not start."""


class SparkJobError(HeadwaterError):
    """A Spark job failed; the next one may succeed."""


class SparkGoneError(HeadwaterError):
    """The Spark application has ended: no job of this session can run any more."""


def configure(
    builder: Any, *, delta: bool = True, ivy_cache: str | None = None, app_name: str | None = None
) -> Any:
    """Set Headwater's settings on a builder and return it; settings made afterwards win.

    Settings of spark-submit win too, and Delta joins the class path of the JVM that spark-submit
    started. `delta=False` leaves Delta out, for sources and sinks without tables. `ivy_cache` is
    the folder for Delta's jars; default `$HEADWATER_JARS` or ~/.cache/headwater/jars.
    """
    # Spark asks this Python for data sources, once per JVM; without it Spark asks `python3`.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    jvm = running_jvm()
    submitted = jvm.settings() if jvm is not None else {}
    settings = {key: value for key, value in SETTINGS.items() if key not in submitted}
    if delta:
        settings |= delta_settings(jvm, submitted, ivy_cache)
    if app_name is not None:
        builder = builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def delta_settings(
    jvm: RunningJvm | None, submitted: Mapping[str, str], ivy_cache: str | None
) -> dict[str, str]:
    """Delta's settings, merged with the submitted ones; puts Delta on a running JVM's class path.

    A Delta that the JVM has from elsewhere (`--packages`, `--jars`, the distribution) stays.
    """
    extensions = _listed(submitted, EXTENSIONS_KEY)
    if DELTA_EXTENSION not in extensions:
        extensions.append(DELTA_EXTENSION)
    settings = {EXTENSIONS_KEY: ",".join(extensions)}
    if CATALOG_KEY not in submitted:
        settings[CATALOG_KEY] = DELTA_CATALOG
    present = jvm.jar_of(DELTA_EXTENSION) if jvm is not None else None
    if present is not None and not _is_in(cache_folder(ivy_cache), present):
        return settings
    jars = delta_jars(ivy_cache)
    if jvm is not None and present is None:
        jvm.add_jars(jars)
    others = _listed(submitted, JARS_KEY)
    names = {other.rpartition("/")[2] for other in others}
    ours = [str(jar) for jar in jars if jar.name not in names]
    settings[JARS_KEY] = ",".join([*others, *ours])
    return settings


def _listed(settings: Mapping[str, str], key: str) -> list[str]:
    return [part for part in settings.get(key, "").split(",") if part]


def _is_in(folder: Path, jar: Path) -> bool:
    return jar.parent.resolve().is_relative_to(folder.resolve())


def session(
    master: str | None = None,
    *,
    delta: bool = True,
    ivy_cache: str | None = None,
    app_name: str = "headwater",
    conf: dict[str, str] | None = None,
    log: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """Start or get a session. `conf` wins over the settings of `configure`.

    `master`: by default the one that spark-submit was given, else `local[*]`. On one machine
    `spark.sql.shuffle.partitions` is the number of cores, unless a configuration sets it. `log`: a
    file for the stderr of the JVM, if this call starts it; with it, a Spark that does not start
    raises SparkStartError with the JVM's last line.
    """
    master = master or submitted_master() or MASTER_DEFAULT
    builder = configure(
        SparkSession.builder.master(master), delta=delta, ivy_cache=ivy_cache, app_name=app_name
    )
    chosen = {**(FEW_CORES if delta and master.startswith("local") else {}), **(conf or {})}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    if log is None:
        spark: SparkSession = builder.getOrCreate()
    else:
        with start_errors(master, log), stderr_into(log):
            spark = builder.getOrCreate()
    choose_shuffle_partitions(spark, os.cpu_count() or 1)
    return spark


@contextmanager
def start_errors(master: str, log: str | os.PathLike[str]) -> Iterator[None]:
    """Around the start of Spark, whose JVM writes to `log`. Raises SparkStartError, of one line."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        # An error of a JVM that answers is in the exception; one of a JVM that ended is in the log.
        said = str(error) if isinstance(error, Py4JError) else Path(log).read_text(errors="replace")
        text = f"Spark did not start on {master}: {last_output_line(said)} (log: {log})"
        raise SparkStartError(text) from error


def submitted_master() -> str | None:
    """The master that spark-submit was given; None outside spark-submit."""
    jvm = running_jvm()
    return None if jvm is None else jvm.settings().get("spark.master")


def last_output_line(said: str) -> str:
    """The last line of a JVM's output outside stack traces."""
    lines = [line for line in said.splitlines() if line.strip() and not STACK_LINE.match(line)]
    return lines[-1].strip().removeprefix(": ") if lines else "it printed no error"


def choose_shuffle_partitions(spark: SparkSession, cores_here: int) -> None:
    """On one machine: one shuffle partition per core, unless a configuration sets the number.

    A streaming query runs a task per shuffle partition in every trigger, whatever the batch's size:
    Spark's default of 200 takes two cores seconds. Batch queries keep 200 as adaptive execution's
    initial number, which it reduces by itself.
    """
    local = local_master(spark.sparkContext.master, cores_here)
    chosen = spark.conf.getAll
    if local is None or SHUFFLE_KEY in chosen:
        return
    spark.conf.set(SHUFFLE_KEY, str(local.slots))
    if ADAPTIVE_KEY not in chosen:
        spark.conf.set(ADAPTIVE_KEY, SPARKS_SHUFFLE_PARTITIONS)


@contextmanager
def job_errors(spark: SparkSession, job: str) -> Iterator[None]:
    """Around a job on the driver. Raises SparkJobError or SparkGoneError, of one line each."""
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        if has_ended(spark):
            text = f"{job}: the Spark application has ended: start another one"
            raise SparkGoneError(text) from error
        raise SparkJobError(f"{job}: {cause(str(error))}") from error


def has_ended(spark: SparkSession) -> bool:
    """True when the session's context is stopped or its JVM has ended."""
    if is_connect(spark):
        return bool(spark.is_stopped)
    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return True


def cause(said: str) -> str:
    """The cause of a failed job, from Spark's error text: the Python worker's error without its
    traceback, or the first line of the Java exception."""
    _, of_python, text = said.partition(FROM_WORKER)
    if of_python:
        lines = text.strip().splitlines()
        frames = [n for n, line in enumerate(lines) if line.startswith((" ", "Traceback "))]
        return " ".join(lines[frames[-1] + 1 if frames else 0 :])
    java = [line for line in said.splitlines() if line.startswith(": ")]
    return (java[0].removeprefix(": ") if java else said).strip()


@contextmanager
def stderr_into(path: str | os.PathLike[str]) -> Iterator[None]:
    """Redirect the stderr of processes started inside the block to `path`.

    pyspark has no parameter for it, and no setting of the JVM suppresses the JVM's own warnings.
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
