"""`headwater tier run TOPIC...`: tiers topics into their Delta tables with Spark jobs."""

from __future__ import annotations

import math
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import FrameType
from typing import Any

import click
from pyspark.sql import SparkSession

from headwater.cli.command_config import client_file
from headwater.cli.existing_topics import existing_topics
from headwater.cli.options import (
    DIRECTORY_DEFAULT,
    bootstrap_options,
    bootstrap_servers,
    echo_json,
    json_option,
    open_admin,
)
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.system import SystemClock
from headwater_spark.spark_session import SparkGoneError, has_ended, session
from headwater_spark.task_security import client_file_options, task_security
from headwater_spark.tiering.job import Round, TopicReplacedError, TopicTier
from headwater_tier.cli.storage_options import HELP, storage_options
from headwater_tier.delta import TableStateError

FAILURE_PAUSE_S = 5.0
WAIT_MAX_S = 3600.0
"""The longest single wait of `run_continuously`; the system limits waits, but not intervals."""


class StopRequest:
    """A flag that a signal handler sets while the same thread waits for it.

    Not an Event: its `set` and `wait` take one lock, so that a handler that runs inside `wait`
    would block for ever. `SimpleQueue.put` is reentrant.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Request the stop. Never blocks."""
        self._is_set = True
        self._wake.put(None)

    def is_set(self) -> bool:
        """True once a stop was requested."""
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Wait for the request for `timeout_s` at most; True if it was made."""
        if not self._is_set:
            try:
                self._wake.get(timeout=timeout_s)
            except queue.Empty:
                pass
        return self._is_set


def _finite(_context: click.Context, _parameter: click.Parameter, value: float | None) -> Any:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds.")
    return value


@click.command()
@click.argument("topics", nargs=-1, required=True)
@bootstrap_options
@click.option("--continuous", is_flag=True, help="Run until Ctrl-C, which stops after a commit.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.0),
    callback=_finite,
    default=None,
    metavar="SECONDS",
    help="Pause between rounds of --continuous; default: each topic's delta.interval.ms.",
)
@click.option("--master", help="Spark's master; default: spark-submit's, else local[*].")
@click.option("--tables-uri", metavar="URI", help="Base folder of tables when no config has one.")
@click.option(
    "--storage-option",
    "storage",
    multiple=True,
    metavar="KEY=VALUE",
    help=HELP,
)
@json_option
def run(
    topics: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    continuous: bool,
    interval_s: float | None,
    master: str | None,
    tables_uri: str | None,
    storage: tuple[str, ...],
    as_json: bool,
) -> int:
    """Write the committed records that are not in the topics' tables yet.

    Sets remote.storage.enable on topics that lack it: only with it do brokers keep local segments
    until they are tiered, and serve old offsets from the table. It cannot be set back to false.
    """
    servers = bootstrap_servers(bootstrap_server, directory)
    security = task_security(client_file_options(client_file()))
    clock = SystemClock()
    _check_topics_exist(servers, topics)
    with spark_log() as log, spark_until_end(master, log) as spark:
        tiers = [
            TopicTier(
                spark,
                topic,
                servers,
                clock,
                tables_uri=tables_uri,
                storage_options=storage_options(storage),
                security=security,
            )
            for topic in topics
        ]
        report = _print_json if as_json else _print
        for topic_tier in tiers:
            if topic_tier.enable() and not as_json:
                click.echo(f"{topic_tier.topic.name}: set remote.storage.enable=true")
        if continuous:
            with asked_to_stop() as stop:
                run_continuously(tiers, interval_s, report, stop, clock)
            return 0
        for topic_tier in tiers:
            drain(topic_tier, report)
        return 0


def _check_topics_exist(servers: str, topics: Sequence[str]) -> None:
    """Raise UnknownTopicOrPartitionError for a topic that does not exist, before Spark starts."""
    with open_admin(servers, DIRECTORY_DEFAULT) as admin:
        existing_topics(admin, topics)


@contextmanager
def spark_log() -> Iterator[Path]:
    """A file for Spark's log lines: deleted at the end, kept and named after an error."""
    with NamedTemporaryFile(prefix="headwater-tier-", suffix=".log", delete=False) as file:
        path = Path(file.name)
    try:
        yield path
    except Exception:
        click.echo(f"Spark's log is {path}", err=True)
        raise
    path.unlink()


@contextmanager
def spark_until_end(
    master: str | None, log: Path, *, open_session: Callable[..., SparkSession] = session
) -> Iterator[SparkSession]:
    """A session that is stopped at the end of the block, unless its application has ended."""
    spark = open_session(master, delta=False, app_name="headwater tier", log=log)
    try:
        yield spark
    finally:
        if not has_ended(spark):
            spark.stop()


@contextmanager
def asked_to_stop() -> Iterator[StopRequest]:
    """A stop request that SIGINT and SIGTERM set; a second signal interrupts at once.

    Spark's own SIGINT handler would cancel the round's job and waste the files it has written.
    """
    stop = StopRequest()

    def asked(_signum: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        click.echo("stopping after this round", err=True)

    former = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def drain(topic_tier: TopicTier, report: Callable[[Round], None]) -> None:
    """Run rounds until one finds nothing to tier."""
    while True:
        done = topic_tier.round()
        report(done)
        if done.idle:
            return


def run_continuously(
    tiers: Sequence[TopicTier],
    interval_s: float | None,
    report: Callable[[Round], None],
    stop: StopRequest,
    clock: Clock,
) -> None:
    """Run rounds of each topic until `stop`, `interval_s` or its `delta.interval.ms` apart."""
    due = [clock.monotonic()] * len(tiers)
    while not stop.wait(min(WAIT_MAX_S, max(0.0, min(due) - clock.monotonic()))):
        for number, topic_tier in enumerate(tiers):
            if due[number] <= clock.monotonic() and not stop.is_set():
                pause_s = _one_round(topic_tier, interval_s, report)
                due[number] = clock.monotonic() + pause_s


def _one_round(
    topic_tier: TopicTier, interval_s: float | None, report: Callable[[Round], None]
) -> float:
    """Run one round; seconds until the next. Errors of brokers and storage are retried later.

    A foreign commit in the table, a recreated topic, and the end of the Spark application end the
    command: the first two need an operator, the last a new process.
    """
    try:
        done = topic_tier.round()
        pause_s = topic_tier.interval_s() if interval_s is None else interval_s
    except (TableStateError, TopicReplacedError, SparkGoneError):
        raise
    except (HeadwaterError, OSError) as e:
        click.echo(f"{topic_tier.topic.name}: {e}; retrying in {FAILURE_PAUSE_S} s", err=True)
        return FAILURE_PAUSE_S
    if not done.idle:
        report(done)
    return 0.0 if done.discarded or done.behind else pause_s


def _print(done: Round) -> None:
    if done.discarded:
        click.echo(f"{done.topic}: another tier job committed first, planning again")
    elif done.idle:
        click.echo(f"{done.topic}: up to date")
    else:
        click.echo(
            f"{done.topic}: {done.rows} rows in {done.files} files"
            f" ({done.bytes_written / 1e6:.1f} MB), table version {done.version}"
        )


def _print_json(done: Round) -> None:
    document: dict[str, Any] = {**asdict(done), "idle": done.idle}
    echo_json(document)
