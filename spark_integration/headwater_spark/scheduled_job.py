"""Shared by the scripts of jobs/: options, one summary line, exit codes, runs of AvailableNow.

A script is a click command that `run_job` runs: exit code 0 when it is done, 1 when it failed, 2
for wrong arguments. The summary is the only line on stdout, an error the last one on stderr, which
spark-submit merges into its stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.cli.command_config import client_file
from headwater.cli.existing_topics import existing_topics
from headwater.cli.main import run_command
from headwater.cli.options import (
    bootstrap_options,
    bootstrap_servers,
    json_option,
    open_admin,
)
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.system import SystemClock
from headwater_spark.options import EARLIEST, LATEST, READ_COMMITTED
from headwater_spark.source import positions
from headwater_spark.source.broker_metadata import Brokers
from headwater_spark.spark_session import has_ended, job_errors, session
from headwater_spark.task_security import client_file_options, task_security

PROGRESS_KEPT = "spark.sql.streaming.numRecentProgressUpdates"
PROGRESS_MAX = "100000"
"""Micro-batches of one run whose rows are counted."""

MALFORMED = "_malformed"
"""The column with the text of a value that is no JSON of the schema."""

F = TypeVar("F", bound=Callable[..., Any])
value_schema_option = click.option(
    "--value-schema",
    required=True,
    metavar="DDL",
    help="Fields of the JSON values, such as 'id INT, name STRING'.",
)
max_offsets_option = click.option(
    "--max-offsets", type=click.IntRange(min=1), metavar="N", help="Offsets per micro-batch."
)


@dataclass(slots=True)
class JobSettings:
    """The options that every script has."""

    name: str
    servers: str
    master: str | None
    is_dry_run: bool
    is_json: bool
    clock: Clock
    started_s: float

    def connection(self) -> dict[str, str]:
        """The options of a reader or writer that connect it, as --command-config says."""
        return {"kafka.bootstrap.servers": self.servers, **client_file_options(client_file())}

    def brokers(self) -> Brokers:
        """Requests to the cluster; the caller closes it."""
        return Brokers(self.servers, security=task_security(self.connection()))

    def summary(self, text: str, **facts: Any) -> None:
        """Print the run's one line: `text`, or with --json the facts."""
        seconds = round(self.clock.monotonic() - self.started_s, 1)
        if self.is_json:
            state = {"job": self.name, "dry_run": self.is_dry_run, "seconds": seconds}
            click.echo(json.dumps({**state, **facts}))
            return
        prefix = "dry run: " if self.is_dry_run else ""
        click.echo(f"{self.name}: {prefix}{text}, {seconds} s")


def job_options(function: F) -> F:
    """The shared options; the command's parameter is `job`, for `settings`."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Check everything, and write nothing."),
        click.option("--master", help="Spark's master; default: spark-submit's, else local[*]."),
        json_option,
        bootstrap_options,
    ):
        function = option(function)
    return function


def settings(name: str, job: Mapping[str, Any]) -> JobSettings:
    """The settings from the parameters that `job_options` adds."""
    servers = bootstrap_servers(job["bootstrap_server"], job["directory"])
    clock = SystemClock()
    return JobSettings(
        name, servers, job["master"], job["dry_run"], job["as_json"], clock, clock.monotonic()
    )


def run_job(command: click.Command) -> int:
    """Run a script's command with the program's arguments; the exit code."""
    return run_command(command, sys.argv[1:], name=f"{command.name}.py")


@contextmanager
def job_session(job: JobSettings) -> Iterator[SparkSession]:
    """The session that runs already, as in a notebook, or one with Delta that ends with the block.

    Errors of Spark become SparkJobError, of one line.
    """
    running = SparkSession.getActiveSession()
    spark = running or session(job.master, app_name=f"headwater {job.name}")
    try:
        with job_errors(spark, job.name):
            yield spark
    finally:
        if running is None and not has_ended(spark):
            spark.stop()


def ddl_schema(option: str, text: str) -> StructType:
    """A schema in Spark's DDL. Raises UsageError that names the option."""
    try:
        schema: StructType = StructType.fromDDL(text)
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines() if line), "")
        raise UsageError(f"{option} is no schema such as 'id INT, name STRING': {reason}") from None
    return schema


def run_available(writer: Any) -> int:
    """Run a stream over what is there now, to its end; the rows that it read."""
    spark: SparkSession = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    spark.conf.set(PROGRESS_KEPT, PROGRESS_MAX)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def stream(
    spark: SparkSession,
    job: JobSettings,
    topic: str,
    limit: int | None,
    *,
    include_headers: bool = False,
) -> DataFrame:
    """A topic's records from the start, or from a checkpoint."""
    reader = (
        spark.readStream.format("headwater")
        .options(**job.connection())
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", str(include_headers).lower())
    )
    if limit is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(limit))
    return reader.load()


def waiting_offsets(spark: SparkSession, job: JobSettings, topic: str, checkpoint: str) -> int:
    """Offsets of the topic that a run from this checkpoint would read."""
    brokers = job.brokers()
    try:
        found = brokers.topics([topic])[topic]
        partitions = [(topic, number) for number in range(found.partitions)]
        starts = brokers.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = brokers.list_offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
    finally:
        brokers.close()
    done = committed_position(spark, checkpoint)
    if done is not None and done.topic_ids.get(topic) != found.topic_id:
        raise UsageError(
            f"the checkpoint {checkpoint} is of another topic than {topic}, or of a deleted one of"
            " that name: give another --checkpoint"
        )
    at = done.end if done is not None else {}
    return sum(max(0, ends[tp] - max(at.get(tp, 0), starts[tp])) for tp in partitions)


def committed_position(spark: SparkSession, checkpoint: str) -> positions.Position | None:
    """The end of the last batch that Spark committed; None before the first."""
    committed = _files(spark, f"{checkpoint}/commits")
    if not committed:
        return None
    text = _files(spark, f"{checkpoint}/offsets")[max(committed)]
    try:
        offset = json.loads(text.splitlines()[2])
    except (IndexError, ValueError) as error:
        raise UsageError(f"the offset log of the checkpoint {checkpoint} is unreadable") from error
    return positions.from_json(offset)


def _files(spark: SparkSession, folder: str) -> dict[int, str]:
    """The files of a checkpoint's log by batch; empty when the folder is missing."""
    try:
        rows = spark.read.text(folder, wholetext=True).select("value", "_metadata.file_name")
        return {int(r.file_name): r.value for r in rows.collect() if r.file_name.isdigit()}
    except PySparkException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return {}
        raise


def check_topics(job: JobSettings, *topics: str) -> None:
    """Raise UsageError for a topic that does not exist, before Spark starts."""
    with open_admin(job.servers, "") as admin:
        try:
            existing_topics(admin, topics)
        except UnknownTopicOrPartitionError as error:
            raise UsageError(
                f"{error.detail}; name another, or create it with `headwater topics create`"
            ) from None
