"""The phases of `make city`: start, the day, drain, jobs and proof."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from city import report
from city.clock import DAY_MS, DAY_START_MS, CityClock
from city.clones import Clones
from city.curves import Curves
from city.feeds import feeds_of
from city.fields import TOPICS, city_text
from city.flows import City, Figure, Flow, Schedule, Site
from city.guard import MediaGuard
from city.ingest import Ingest
from city.latency import Latency
from city.ledger import Ledger
from city.notify import FileNotifier, Notifier, Notify, TopicNotifier, load
from city.pages import Pages
from city.priority import lower_batch_work
from city.producers import Producers
from city.quality import Quality
from city.query_starts import abandon
from city.rows import Rows
from city.sites import Sites
from city.skew import Skew
from city.video import Video
from city.watch_batch import WatchBatch
from city.watch_flow import Watch
from city.world import World, WorldPlan, make_world
from demos.screen import Screen
from headwater import Admin, NewTopic
from headwater.clock import Clock
from headwater_spark import Cluster, session

BROKERS = 3
MASTER = "local[8]"
GIVE_UP = {"kafka.default.api.timeout.ms": "10000"}
"""A query whose site is lost gives up after so long; until then it cannot be stopped."""
SITE_B_PORTS = 10
"""Site B's first port comes so long after site A's."""
WIDTH = 140
"""Columns when the output is no terminal."""
SPARK_LOG = "spark.log"
PROOF_FILE = "proof.json"
ALARMS_FILE = "alarms.jsonl"
REFRESH_S = 0.25
# One JVM that runs for minutes on two cores: the optimising compiler would take half the CPU time.
# Without it the JVM reserves too little memory for compiled code.
JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
SPARK_CONF = {
    "spark.scheduler.mode": "FAIR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": JVM,
}


@dataclass(frozen=True)
class CityOptions:
    """The options of the command line."""

    out: Path
    seconds: float
    port: int
    pages_port: int
    keep: bool
    notifier: str | None
    plan: WorldPlan
    within_s: float | None = None
    """A run that takes longer has failed; None: however long it takes."""


def flows_of_city(options: CityOptions, cluster: Cluster, screen: Screen) -> list[Flow]:
    """The flows, in the order in which they start and stop; `cluster` is site A."""
    latency, quality, watch = Latency(), Quality(), Watch()
    pages = Pages(options.pages_port, watch, Curves(latency, quality), screen.console.print)
    live: list[Flow] = [WatchBatch(watch.first_reader), watch, pages]
    others: list[Flow] = [Video(), Clones(), Skew(), MediaGuard(), Rows()]
    sites = Sites(cluster, options.port + SITE_B_PORTS)
    return [Ingest(), latency, quality, *live, *others, sites]


class Run:
    """One run of the city: its state, and a method per phase."""

    def __init__(
        self, options: CityOptions, screen: Screen, city: City, flows: Sequence[Flow]
    ) -> None:
        self._options = options
        self._screen = screen
        self._city = city
        self._flows = flows
        self._started: list[Flow] = []
        self._producers: Producers | None = None
        self.problems: list[str] = []
        self.figures: list[Figure] = []

    def start(self) -> None:
        """Create the topics, start the flows one after the other."""
        create_topics(self._city.site.servers)
        self._city.notifier.start()
        for flow in self._flows:
            with self._screen.working(f"start {flow.name}"):
                self._started.append(flow)
                flow.start(self._city)

    def day(self) -> None:
        """The day: devices send, flows work, events happen."""
        city = self._city
        lower_batch_work(city.spark)
        feeds = feeds_of(city.world)
        spools = self._options.out / "spools"
        producers = Producers(city.world, feeds, city.clock, city.ledger, spools, city.mirrored)
        self._producers = producers
        city.on_switch.insert(0, producers.move)
        city.clock.begin()
        producers.start(city.site)
        city.schedule.start()
        self._follow(producers)
        self.problems += producers.join()
        self.problems += city.schedule.join()

    def _follow(self, producers: Producers) -> None:
        city, ledger = self._city, self._city.ledger
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
        )
        with Progress(*columns, console=self._screen.console, transient=True) as progress:
            task = progress.add_task("", total=DAY_MS, state="")
            while producers.is_alive:
                threading.Event().wait(REFRESH_S)
                now_ms = min(city.clock.now_ms(), DAY_START_MS + DAY_MS)
                state = f"{ledger.acked_count:,} of {ledger.total:,} acked"
                told = len(city.notifier.deliveries)
                progress.update(
                    task,
                    completed=now_ms - DAY_START_MS,
                    description=city_text(now_ms),
                    state=f"{state} | site {city.site.name} | {told} alarms",
                )
        self._screen.console.print(f"  {ledger.acked_count:,} records acknowledged")

    def drain(self) -> None:
        """Let every flow process what is left."""
        while self._started:
            flow = self._started[0]
            with self._screen.working(f"finish {flow.name}"):
                flow.stop()
            self._started.pop(0)
        self._city.notifier.stop()
        for delivery in self._city.notifier.deliveries:
            self._screen.console.print(f"  alarm at {delivery.alarm.city_time}: ", end="")
            self._screen.console.print(delivery.alarm.text, markup=False, highlight=False)
            self.problems += [f"an alarm was not delivered: {e}" for e in delivery.errors]

    def prove(self) -> None:
        """Every figure against the truth."""
        for flow in self._flows:
            with self._screen.working(f"prove {flow.name}"):
                self.figures += flow.figures()
        self._screen.console.print(report.proof_table(self.figures))
        self.problems += report.differences(self.figures)

    def abandon(self) -> None:
        """End what still runs, after an error; the error is what counts."""
        self._city.stopping.set()
        if self._producers is not None:
            self._producers.stop()
        for query in self._city.spark.streams.active:
            abandon(query)
        self._city.notifier.stop()


def create_topics(servers: str, replication_factor: int = BROKERS) -> None:
    """Create the city's topics."""
    with Admin(servers) as admin:
        admin.create_topics(
            [
                NewTopic(
                    plan.name,
                    num_partitions=plan.partitions,
                    replication_factor=replication_factor,
                    configs=plan.configs,
                )
                for plan in TOPICS
            ]
        )


def make_city(
    options: CityOptions, clock: Clock, world: World, spark: SparkSession, cluster: Cluster
) -> City:
    """What the flows share, with site A at work."""
    servers = cluster.bootstrap_servers
    reach = {**cluster.spark_options(), **GIVE_UP}
    site = Site("A", servers, options.out / "tables-A", reach)
    city_clock = CityClock(clock, options.seconds)
    stopping = threading.Event()
    notifiers: list[Notify] = [FileNotifier(options.out / ALARMS_FILE)]
    notifiers += [load(options.notifier)] if options.notifier else []
    city = City(
        spark=spark,
        world=world,
        clock=city_clock,
        out=options.out,
        notifier=Notifier(notifiers),
        site=site,
        sites=[site],
        ledger=Ledger({feed.topic: len(feed.truth) for feed in feeds_of(world)}),
        schedule=Schedule(city_clock, stopping),
        stopping=stopping,
    )
    notifiers.append(TopicNotifier(lambda: city.site.servers))
    return city


def run_city(options: CityOptions, clock: Clock) -> int:
    """Run all phases; the exit code, 0 if every figure agrees."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    screen = Screen(console)
    started_s = clock.monotonic()
    screen.heading("A city's cameras on Headwater: start")
    with screen.working("make the world"):
        world = make_world(options.plan)
    gc.freeze()  # a full collection over long-lived objects would pause the producers
    with screen.working(f"start Spark on {MASTER}"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        log = options.out / SPARK_LOG
        spark = session(MASTER, app_name="headwater-city", conf=SPARK_CONF, log=log)
    try:
        with screen.working(f"start {BROKERS} brokers as Spark jobs"):
            cluster = Cluster.start(spark, BROKERS, options.out / "site-a", options.port)
        try:
            city = make_city(options, clock, world, spark, cluster)
            run = Run(options, screen, city, flows_of_city(options, cluster, screen))
            _phases(run, screen)
            took_s = clock.monotonic() - started_s
            report.write_proof(options.out / PROOF_FILE, run.figures, took_s)
            if options.keep:
                _stay(console, city)
        finally:
            cluster.stop()
    finally:
        spark.stop()
    if options.within_s is not None and took_s > options.within_s:
        run.problems.append(
            f"it took {took_s:.0f} s: more than {options.within_s:.0f}, which two free cores need"
        )
    return _conclude(console, run, took_s, options.out / SPARK_LOG)


def _phases(run: Run, screen: Screen) -> None:
    try:
        run.start()
        screen.heading("The day")
        run.day()
        screen.heading("After the day")
        run.drain()
        screen.heading("The proof")
        run.prove()
    except BaseException:
        run.abandon()
        raise


def _stay(console: Console, city: City) -> None:
    console.print(f"\nThe city runs until Ctrl-C. Bootstrap servers: {city.site.servers}")
    for topic in ("vehicles", "faces"):
        console.print(f"Delta table of {topic}: {city.site.table(topic)}")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("stopping")


def _conclude(console: Console, run: Run, took_s: float, log: Path) -> int:
    for problem in run.problems:
        console.print(f"[bold red]{problem}", highlight=False)
    console.print(f"{took_s:.0f} s from the start to the proof")
    if run.problems:
        console.print(f"Spark's own log: {log}")
        return 1
    console.print(f"[bold green]All {len(run.figures)} figures agree with the truth.")
    return 0
