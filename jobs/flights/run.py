"""The phases of `make demo`: produce with two kills, bulk replay, one copy, proof."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from rich.console import Console

from compact import compact
from flights import (
    bulk_replay,
    join_and_statistics,
    leaks,
    local_bytes,
    negative_control,
    pictures,
    proof,
    readers,
    report,
)
from flights.connection import Connection
from flights.kills import BrokerKills
from flights.ledger import Ledger
from flights.records import (
    ALERTS,
    FLIGHTS,
    WEATHER,
    Feed,
    alert_ids,
    flights_feed,
    flights_frame,
    public_facts,
    weather_feed,
    weather_frame,
)
from flights.screen import YearScreen
from flights.tiering import Tiering, tier_all
from flights.year import Kill, Year, midnight_ms
from headwater import Admin, NewTopic
from headwater.cli.main import run_command
from headwater.client.blocking.broker_status import BrokerStatusClient
from headwater.client.blocking.epoch_client import EpochClient
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_spark.cluster.cluster import Cluster
from headwater_spark.spark_session import session

MASTER = "local-cluster[3,3,1500]"
SPARK_LOG = "spark.log"
"""The file in the demo's folder for the stderr of Spark's driver."""
BROKERS = 3
WIDTH = 116
"""Columns when the output is no terminal."""
PARTITIONS = {FLIGHTS: 3, WEATHER: 1, ALERTS: 1, bulk_replay.REPLAY: 3}
TIERED = (FLIGHTS, WEATHER, bulk_replay.REPLAY)
LOCAL_GONE_TIMEOUT_S = 60.0
# Four JVMs that run for minutes on two cores: the optimising compiler would take half the CPU time.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_CONF = {
    "spark.scheduler.mode": "FAIR",
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
}
BROKER_PROPERTIES = {"log.retention.check.interval.ms": "1000"}


@dataclass(frozen=True)
class DemoOptions:
    """The options of the command line."""

    out: Path
    seconds: float
    keep: bool
    port: int
    plain_reader: Path
    secure: bool


@dataclass
class Demo:
    """The demo's state, and a method per step of each phase."""

    options: DemoOptions
    clock: Clock
    console: Console
    flights: pd.DataFrame
    feeds: list[Feed]
    spark: SparkSession
    cluster: Cluster
    problems: list[str] = field(default_factory=list)
    verdicts: list[proof.Verdict] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)
    images: list[Path] = field(default_factory=list)
    known_secrets: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def connection(self) -> Connection:
        """How clients reach the cluster."""
        return Connection.of(self.cluster)

    @property
    def screen(self) -> YearScreen:
        """The console with progress bars."""
        return YearScreen(self.console)

    def table_uri(self, topic: str) -> str:
        """The URI of the topic's Delta table, after tiering the topic completely."""
        if topic not in self.tables:
            self.tables[topic] = tier_all(self.spark, self.connection, topic, self.clock)[1]
        return self.tables[topic]

    # Phase 1

    def create_topics(self) -> None:
        """Create the topics: replication factor 3, min.insync.replicas 2, unlimited retention."""
        configs = {"min.insync.replicas": "2", "retention.ms": "-1"}
        with Admin(self.connection.servers, **self.connection.sdk) as admin:
            admin.create_topics(
                [
                    NewTopic(
                        name,
                        num_partitions=count,
                        replication_factor=BROKERS,
                        configs={**configs, "remote.storage.enable": str(name in TIERED).lower()},
                    )
                    for name, count in PARTITIONS.items()
                ]
            )

    def run_year(self) -> Ledger:
        """Produce the year in about a minute with queries and tiering running, and kill twice."""
        self.screen.heading("1. A year in a minute, with two kills")
        ledger = Ledger(self.clock)
        broker_kills = BrokerKills(self.cluster)
        kills = [
            Kill("broker", midnight_ms(7, 1), broker_kills.kill_broker),
            Kill("executor", midnight_ms(10, 1), broker_kills.kill_executor),
        ]
        year = Year(self.feeds, ledger, kills, self.options.seconds, self.clock)
        with self.screen.working("start the streaming queries"):
            running = join_and_statistics.start_all(
                self.spark, self.connection, self.options.out, self.clock
            )
        tiering = Tiering(self.spark, self.connection, [FLIGHTS, WEATHER], self.clock)
        producing = threading.Thread(target=year.run, args=(self.connection,), name="demo-year")
        try:
            tiering.start()
            producing.start()
            self.screen.follow_year(year, ledger, producing, tiering.progress)
            with self.screen.working("streaming queries and tiering catch up"):
                join_and_statistics.finish(running)
                tiering.finish()
        finally:
            year.stopping.set()
            tiering.stopping.set()
        if year.error is not None:
            raise HeadwaterError(f"the year was not produced: {year.error!r}") from year.error
        self.problems += year.check()
        self.console.print(report.kills_table(year, ledger))
        for refusal in tiering.refusals[-3:]:
            self.console.print(
                f"  a round of tiering was refused, the next took its rows: {refusal}"
            )
        delays = self.spark.read.format("delta").load(str(self.options.out / "delays"))
        frame = delays.select("hour", "dep_delay", "is_rough").toPandas()
        self.images = pictures.draw_all(year, ledger, frame, self.options.out)
        return ledger

    # Phase 2

    def run_bulk_replay(self) -> None:
        """Produce, read, tier and scan 5 million records, each with the same checksum."""
        self.screen.heading("2. Full speed: the year replayed to 5 million records")
        with self.screen.working("produce"):
            steps = [bulk_replay.produce(self.connection, self.flights, self.clock)]
        with self.screen.working("consume"):
            steps.append(bulk_replay.consume(self.connection, self.clock))
        with self.screen.working("tier"):
            step, uri = bulk_replay.tier(self.spark, self.connection, self.clock, steps[0])
            steps.append(step)
        with self.screen.working("scan"):
            steps += bulk_replay.scans(self.spark, self.connection, uri, self.clock)
        self.console.print(report.steps_table(steps))
        self.print_loop_turns()
        self.problems += bulk_replay.disagreements(steps)

    def print_loop_turns(self) -> None:
        """Print each broker's longest iteration of its event loop since it became ready."""
        turns = []
        for address in self.connection.servers.split(","):
            with BrokerStatusClient(address, self.connection.credentials) as client:
                document = json.loads(client.status().document)
            turn_ms = document["loop_turn_ms"]["since_start"]
            turns.append(f"broker {document['broker_id']} {turn_ms:.1f} ms")
        self.console.print(f"Longest iteration of the event loop: {', '.join(turns)}")

    # Phase 3

    def drop_local_segments(self) -> None:
        """Set local retention to 1 ms and wait until only the Delta tables hold the records."""
        self.screen.heading("3. One copy")
        with Admin(self.connection.servers, **self.connection.sdk) as admin:
            for topic in (FLIGHTS, WEATHER):
                admin.alter_configs("topic", topic, {"local.retention.ms": "1"})
        end = self.clock.monotonic() + LOCAL_GONE_TIMEOUT_S
        with self.screen.working("delete local segments") as show:
            while (left := self._local_bytes()) > 0:
                show(f"delete local segments: {left:,} bytes left")
                if self.clock.monotonic() > end:
                    self.problems.append(f"{left:,} local bytes are left of tiered topics")
                    break
                threading.Event().wait(0.5)
        self.console.print(f"  local bytes of {FLIGHTS} and {WEATHER}: {self._local_bytes():,}")

    def _local_bytes(self) -> int:
        return local_bytes.of_topics(self.options.out / "cluster", (FLIGHTS, WEATHER))

    def run_scheduled_job(self) -> None:
        """Compact the weather table as a scheduler would: by a script that logs in by a file."""
        words = [WEATHER, "--files-min", "2", "--bootstrap-server", self.connection.servers]
        words += ["--command-config", str(self.connection.file)]
        code = run_command(compact, words, name="compact.py")
        if code != 0:
            self.problems.append(f"jobs/compact.py ended with {code}")

    # Phase 4

    def add_hop(self, hop: str, read_by: str, read: Callable[[str], list[proof.Row]]) -> None:
        """Read both topics with one reader and judge its rows."""
        with self.screen.working(f"{hop}, read by {read_by}"):
            rows = [row for feed in self.feeds for row in read(feed.topic)]
            self.verdicts.append(proof.judge(hop, read_by, rows, self.feeds))

    def add_ledger_hops(self, ledger: Ledger) -> None:
        """Add the source, at the ledger's offsets, and the ledger's acks."""
        rows = ledger.rows(self.feeds)
        self.verdicts.append(proof.judge("source", "pandas", rows, self.feeds))
        self.verdicts.append(proof.judge("acks", "producer's ledger", rows, self.feeds))

    def by_confluent(self, topic: str) -> list[proof.Row]:
        """A topic's rows, read by librdkafka's consumer from offset 0."""
        return readers.by_confluent(self.connection, topic, self.clock)

    def add_hot_hops(self) -> None:
        """Add the topics while their segments are local."""
        by_sdk = partial(readers.by_sdk, self.connection, clock=self.clock)
        self.add_hop("topic", "headwater.Consumer", by_sdk)
        self.add_hop("topic", "confluent-kafka", self.by_confluent)

    def add_delta_hops(self) -> None:
        """Add the tables, read by Spark and by deltalake."""

        def by_spark(topic: str) -> list[proof.Row]:
            return readers.by_spark_delta(self.spark, topic, self.table_uri(topic))

        def by_deltalake(topic: str) -> list[proof.Row]:
            script, scratch = self.options.plain_reader, self.options.out
            return readers.by_plain_deltalake(topic, self.table_uri(topic), script, scratch)

        self.add_hop("Delta", "Spark", by_spark)
        self.add_hop("Delta", "deltalake + pyarrow", by_deltalake)

    def add_cold_hops(self) -> None:
        """Add the topics and the union read after the local segments are deleted."""
        self.add_hop("old offsets, 0 local bytes", "confluent-kafka", self.by_confluent)
        by_union = partial(readers.by_union, self.spark, connection=self.connection)
        self.add_hop("union", "headwater_spark.table", by_union)

    def prove(self) -> None:
        """Judge hops and alerts, run the negative control, check the facts, print all of it."""
        self.screen.heading("4. The proof")
        verdict = self.judge_alerts()
        weather = self.feeds[1]
        with self.screen.working("negative control"):
            controls = negative_control.run_controls(
                self.spark, self.table_uri(WEATHER), weather, self.options.out
            )
        facts = public_facts(self._flights_in_delta())
        self.console.print(report.proof_table(self.verdicts))
        self.console.print(report.alerts_table(verdict))
        self.console.print(report.facts_table(facts))
        self.console.print(report.controls_table(controls))
        if not proof.agree(self.verdicts):
            self.problems.append("the hops differ")
        if not verdict.is_clean:
            self.problems.append("the alerts differ from the expected ones")
        if not negative_control.all_named(controls):
            self.problems.append("the proof missed a planted fault")
        self.problems += [f"{n}: {x} expected, {y} found" for n, x, y in facts if x != y]

    def search_secrets(self) -> None:
        """Search all that the run has left for the cluster's secrets."""
        self.screen.heading("5. No secret outside the cluster's private folders")
        with self.screen.working("search logs, event logs, plans, processes, znodes, tables"):
            self.known_secrets = leaks.secrets_of_run(self.cluster, self.connection)
            leaks.write_plan(self.spark, self.connection, FLIGHTS, self.options.out)
            found = leaks.search(self.options.out, self.spark, self.known_secrets)
        self.console.print(f"  {found}")
        self.problems += found.problems

    def search_after_end(self) -> None:
        """Search the files again when Spark has written the last ones."""
        if self.known_secrets:
            self.problems += leaks.search(self.options.out, None, self.known_secrets).problems

    def judge_alerts(self) -> proof.AlertVerdict:
        """Compare the alerts topic with the expected ids, its epochs with the query's batches."""
        checkpoint = join_and_statistics.alerts_checkpoint(self.options.out)
        values = [row[5] or b"" for row in readers.by_sdk(self.connection, ALERTS, self.clock)]
        credentials = self.connection.credentials
        with EpochClient(self.connection.servers, credentials=credentials) as client:
            sink = client.describe(proof.query_id(checkpoint))
        return proof.judge_alerts(
            values,
            alert_ids(self.flights),
            last_batch=proof.last_batch(checkpoint),
            last_epoch=-1 if sink is None or sink.last_epoch is None else sink.last_epoch,
            open_epochs=0 if sink is None else len(sink.epochs),
        )

    def _flights_in_delta(self) -> pd.DataFrame:
        value = "from_json(cast(value AS STRING), 'dep_time DOUBLE, dep_delay DOUBLE')"
        frame = self.spark.read.format("delta").load(self.table_uri(FLIGHTS))
        return frame.selectExpr(f"{value} AS row").select("row.*").toPandas()


def run_demo(options: DemoOptions, clock: Clock) -> int:
    """Run all phases; the exit code, 0 if every comparison is equal."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    screen = YearScreen(console)
    screen.heading("Headwater: a Kafka-compatible log, brokers in Spark, history in Delta")
    with screen.working("read 336,776 flights and 26,115 hours of weather"):
        flights = flights_frame()
        feeds = [flights_feed(flights), weather_feed(weather_frame())]
    gc.freeze()  # a full collection over a million long-lived objects would pause the producer
    with screen.working(f"start Spark on {MASTER}"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        log = options.out / SPARK_LOG
        conf = {**SPARK_CONF, **(leaks.event_log(options.out) if options.secure else {})}
        spark = session(MASTER, app_name="headwater-demo", conf=conf, log=log)
    try:
        with screen.working("start 3 brokers as Spark jobs"):
            cluster = Cluster.start(
                spark,
                BROKERS,
                options.out / "cluster",
                options.port,
                properties=BROKER_PROPERTIES,
                secure=options.secure,
                tiering=False,  # it shows tiering by Spark jobs, on the executors' cores
            )
        try:
            demo = Demo(options, clock, console, flights, feeds, spark, cluster)
            _phases(demo)
            if options.keep:
                _stay(console, demo)
        finally:
            cluster.stop()
    finally:
        spark.stop()
    demo.search_after_end()
    return _conclude(console, demo)


def _phases(demo: Demo) -> None:
    demo.create_topics()
    ledger = demo.run_year()
    demo.add_ledger_hops(ledger)
    demo.add_hot_hops()
    demo.add_delta_hops()
    demo.run_bulk_replay()
    if demo.options.secure:
        demo.run_scheduled_job()
    demo.drop_local_segments()
    demo.add_cold_hops()
    demo.prove()
    if demo.options.secure:
        demo.search_secrets()


def _stay(console: Console, demo: Demo) -> None:
    """Leave the cluster running until Ctrl-C."""
    directory = demo.options.out / "cluster"
    console.print(f"\nThe cluster runs until Ctrl-C. Bootstrap servers: {demo.connection.servers}")
    console.print(f"Try:          headwater status --watch --dir {directory}")
    console.print(f"              headwater consume {FLIGHTS} --dir {directory}")
    for topic, uri in demo.tables.items():
        console.print(f"Delta table of {topic}: {uri}")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("stopping")


def _conclude(console: Console, demo: Demo) -> int:
    console.print()
    for picture in demo.images:
        console.print(f"picture: {picture}")
    for problem in demo.problems:
        console.print(f"[bold red]{problem}")
    if demo.problems:
        console.print(f"Spark's own log: {demo.options.out / SPARK_LOG}")
    if not demo.problems:
        console.print("[bold green]Log, Spark and Delta agree.")
    return 1 if demo.problems else 0
