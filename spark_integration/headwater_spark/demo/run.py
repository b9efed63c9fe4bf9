"""`make demo`: the whole path on real input, ending with the proof. Exit 1 on any difference."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from headwater import Admin, NewTopic
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_spark.cluster import Cluster
from headwater_spark.demo import control, flatout, local_bytes, pictures, proof, queries, readers
from headwater_spark.demo import report
from headwater_spark.demo.ledger import Ledger
from headwater_spark.demo.records import (
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
from headwater_spark.demo.screen import Screen
from headwater_spark.demo.year import Kill, Year, midnight_ms
from headwater_spark.spark_session import session
from headwater_spark.tier_job import run_once

MASTER = "local-cluster[3,3,1500]"
BROKERS = 3
PARTITIONS = {FLIGHTS: 6, WEATHER: 3, ALERTS: 3, flatout.REPLAY: 6}
TIERED = (FLIGHTS, WEATHER, flatout.REPLAY)
TIER_INTERVAL_S = 4.0
LOCAL_GONE_TIMEOUT_S = 60.0
SCHEDULER = {"spark.scheduler.mode": "FAIR", "spark.sql.shuffle.partitions": "3"}


@dataclass(frozen=True)
class DemoOptions:
    """What the command line chooses."""

    out: Path
    seconds: float
    keep: bool
    plain_reader: Path


@dataclass
class Demo:
    """The demo's state, phase by phase."""

    options: DemoOptions
    clock: Clock
    console: Console
    flights: pd.DataFrame
    feeds: list[Feed]
    spark: SparkSession
    cluster: Cluster
    problems: list[str] = field(default_factory=list)
    verdicts: list[proof.Verdict] = field(default_factory=list)

    @property
    def servers(self) -> str:
        """The stable bootstrap list."""
        return self.cluster.bootstrap_servers

    @property
    def screen(self) -> Screen:
        """Where progress goes."""
        return Screen(self.console)

    def table_uri(self, topic: str) -> str:
        """The topic's Delta table."""
        return self.cluster.table_uri(topic)

    # Phase 1

    def create_topics(self) -> None:
        """RF 3, acked by two; history is kept for ever and tiered."""
        configs = {"min.insync.replicas": "2", "retention.ms": "-1"}
        with Admin(self.servers) as admin:
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
        """A year in about a minute: produce, join, count, alert, tier; two kills."""
        self.screen.heading("1. A year in a minute, with two kills")
        ledger = Ledger(self.clock)
        kills = [
            Kill("broker", midnight_ms(7, 1), self.cluster.kill_broker),
            Kill("executor", midnight_ms(10, 1), self.cluster.kill_executor),
        ]
        year = Year(self.feeds, ledger, kills, self.options.seconds, self.clock)
        running = self._start_queries()
        tiering = Tiering(self.spark, self.servers, [FLIGHTS, WEATHER])
        producing = threading.Thread(target=year.run, args=(self.servers,), name="demo-year")
        try:
            tiering.start()
            producing.start()
            self.screen.follow_year(year, ledger, producing, tiering.hint)
            with self.screen.working("streaming queries and tiering catch up"):
                queries.finish(running)
                tiering.stop()
        finally:
            year.stopping.set()
            tiering.stopping.set()
        self.problems += year.check() + tiering.problems
        self.console.print(report.kills_table(year, ledger))
        delays = self.spark.read.format("delta").load(str(self.options.out / "delays"))
        frame = delays.select("hour", "dep_delay", "is_rough").toPandas()
        self.pictures = pictures.draw_all(year, ledger, frame, self.options.out)
        return ledger

    def _start_queries(self) -> list[StreamingQuery]:
        start = (queries.start_join, queries.start_statistics, queries.start_alerts)
        return [one(self.spark, self.servers, self.options.out) for one in start]

    # Phase 2

    def run_flat_out(self) -> None:
        """5 million records through every columnar way, each with the same checksum."""
        self.screen.heading("2. Flat out: the year replayed to 5 million records")
        with self.screen.working("produce"):
            steps = [flatout.produce(self.servers, self.flights, self.clock)]
        with self.screen.working("consume"):
            steps.append(flatout.consume(self.servers, self.clock))
        with self.screen.working("tier"):
            steps.append(flatout.tier(self.spark, self.servers, self.clock, steps[0]))
        with self.screen.working("scan"):
            uri = self.table_uri(flatout.REPLAY)
            steps += flatout.scans(self.spark, self.servers, uri, self.clock)
        self.console.print(report.steps_table(steps))
        self.problems += flatout.disagreements(steps)

    # Phase 3

    def drop_local_segments(self) -> None:
        """Local retention drops what Delta holds: one copy is left."""
        self.screen.heading("3. One copy")
        with Admin(self.servers) as admin:
            for topic in (FLIGHTS, WEATHER):
                admin.alter_configs("topic", topic, {"local.retention.ms": "1"})
        end = self.clock.monotonic() + LOCAL_GONE_TIMEOUT_S
        with self.screen.working("local segments go") as say:
            while (left := self._local_bytes()) > 0:
                say(f"local segments go: {left:,} bytes left")
                if self.clock.monotonic() > end:
                    self.problems.append(f"{left:,} local bytes are left of tiered topics")
                    break
                threading.Event().wait(0.5)
        self.console.print(f"  local bytes of {FLIGHTS} and {WEATHER}: {self._local_bytes():,}")

    def _local_bytes(self) -> int:
        return local_bytes.of_topics(self.cluster.data_dirs, (FLIGHTS, WEATHER))

    # Phase 4

    def add_hop(self, hop: str, read_by: str, read: Callable[[str], list[proof.Row]]) -> None:
        """Read both topics by one reader and judge what it saw."""
        with self.screen.working(f"{hop}, read by {read_by}"):
            rows = [row for feed in self.feeds for row in read(feed.topic)]
            self.verdicts.append(proof.judge(hop, read_by, rows, self.feeds))

    def add_ledger_hops(self, ledger: Ledger) -> None:
        """The source itself, placed where the ledger says, and the ledger's own acks."""
        rows = ledger.rows(self.feeds)
        self.verdicts.append(proof.judge("source", "pandas", rows, self.feeds))
        self.verdicts.append(proof.judge("acks", "producer's ledger", rows, self.feeds))

    def add_hot_hops(self) -> None:
        """While the log is still local."""
        self.add_hop("topic", "headwater.Consumer", lambda t: readers.by_sdk(self.servers, t, self.clock))
        self.add_hop("topic", "confluent-kafka", lambda t: readers.by_confluent(self.servers, t, self.clock))

    def add_delta_hops(self) -> None:
        """The tables, by Spark and by plain deltalake."""
        self.add_hop("Delta", "Spark", lambda t: readers.by_spark_delta(self.spark, t, self.table_uri(t)))
        script, scratch = self.options.plain_reader, self.options.out
        self.add_hop(
            "Delta",
            "deltalake + pyarrow",
            lambda t: readers.by_plain_deltalake(t, self.table_uri(t), script, scratch),
        )

    def add_cold_hops(self) -> None:
        """With no local bytes left."""
        self.add_hop("old offsets, 0 local bytes", "confluent-kafka", lambda t: readers.by_confluent(self.servers, t, self.clock))
        self.add_hop("union", "headwater_spark.table", lambda t: readers.by_union(self.spark, t, self.servers))

    def prove(self) -> None:
        """The table, the alerts, the facts, the negative control."""
        self.screen.heading("4. The proof")
        alerts = [row[5] or b"" for row in readers.by_sdk(self.servers, ALERTS, self.clock)]
        verdict = proof.judge_alerts(alerts, alert_ids(self.flights))
        flights = self.feeds[0]
        first = readers.by_spark_delta(self.spark, FLIGHTS, self.table_uri(FLIGHTS))[0]
        with self.screen.working("negative control"):
            controls = control.run_controls(
                self.spark, self.table_uri(FLIGHTS), flights, (first[1], first[2]), self.options.out
            )
        facts = public_facts(self._flights_in_delta())
        self.console.print(report.proof_table(self.verdicts))
        report.say_alerts(self.console, verdict)
        self.console.print(report.facts_table(facts))
        self.console.print(report.controls_table(controls))
        if not proof.agree(self.verdicts):
            self.problems.append("the hops differ")
        if not verdict.is_clean:
            self.problems.append("the alerts differ from the oracle")
        if not control.all_named(controls):
            self.problems.append("the verifier missed a planted fault")
        self.problems += [f"{n}: {x} expected, {y} found" for n, x, y in facts if x != y]

    def _flights_in_delta(self) -> pd.DataFrame:
        value = "from_json(cast(value AS STRING), 'dep_time DOUBLE, dep_delay DOUBLE')"
        frame = self.spark.read.format("delta").load(self.table_uri(FLIGHTS))
        return frame.selectExpr(f"{value} AS row").select("row.*").toPandas()


class Tiering:
    """Tiering beside the streaming queries: rounds of `headwater tier run` in a thread."""

    def __init__(self, spark: SparkSession, servers: str, topics: list[str]) -> None:
        self._spark = spark
        self._servers = servers
        self._topics = topics
        self._thread = threading.Thread(target=self._run, name="demo-tiering", daemon=True)
        self.stopping = threading.Event()
        self.rows = 0
        self.problems: list[str] = []

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def stop(self) -> None:
        """End the rounds, then take what is left in a last one."""
        self.stopping.set()
        self._thread.join()
        self._round()

    def hint(self) -> str:
        """For the screen."""
        return f" | {self.rows:,} in Delta"

    def _run(self) -> None:
        while not self.stopping.wait(TIER_INTERVAL_S):
            self._round()

    def _round(self) -> None:
        try:
            self.rows += run_once(self._spark, self._servers, self._topics).rows
        except HeadwaterError as e:
            self.problems.append(f"tiering: {e}")


def run_demo(options: DemoOptions, clock: Clock) -> int:
    """All phases; 0 when everything agrees."""
    console = Console()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    screen = Screen(console)
    screen.heading("Headwater: a Kafka-compatible log, brokers in Spark, history in Delta")
    with screen.working("read 336,776 flights and 26,115 hours of weather"):
        flights = flights_frame()
        feeds = [flights_feed(flights), weather_feed(weather_frame())]
    with screen.working(f"start Spark on {MASTER}"):
        spark = session("headwater-demo", master=MASTER, config=SCHEDULER)
    try:
        with screen.working("start 3 brokers as Spark jobs"):
            cluster = Cluster.start(spark, brokers=BROKERS, dir=options.out / "cluster")
        try:
            demo = Demo(options, clock, console, flights, feeds, spark, cluster)
            _phases(demo)
        finally:
            cluster.stop()
    finally:
        spark.stop()
    return _conclude(console, demo, options)


def _phases(demo: Demo) -> None:
    demo.create_topics()
    ledger = demo.run_year()
    demo.add_ledger_hops(ledger)
    demo.add_hot_hops()
    demo.add_delta_hops()
    demo.run_flat_out()
    demo.drop_local_segments()
    demo.add_cold_hops()
    demo.prove()


def _conclude(console: Console, demo: Demo, options: DemoOptions) -> int:
    console.print()
    for picture in demo.pictures:
        console.print(f"picture: {picture}")
    for problem in demo.problems:
        console.print(f"[bold red]{problem}")
    if not demo.problems:
        console.print("[bold green]Log, Spark and Delta agree.")
    return 1 if demo.problems else 0
