"""A Spark query under test: its cluster, its crash points, its input, and what reads its output."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import confluent_kafka
import deltalake

from headwater import Admin
from headwater.client.blocking.epoch_client import EpochClient
from headwater.client.sink_values import SinkDescription
from headwater.client.values import TopicPartition
from integration.cluster import LocalCluster
from suites import judge, spark_judge, spark_processes
from suites.clusters import create_topic
from suites.killing import KillableProgram
from suites.spark_judge import Finding, Output, Seen
from suites.spark_pipeline import ALERTS, BOTH, EVERY, MERGING, RESTARTED, SUPERSEDED

HOOKS = Path(__file__).parent / "spark_hooks"
EXECUTORS_MASTER = "local-cluster[1,2,1024]"
"""An executor with a JVM of its own, to be killed."""
LOCAL_MASTER = "local[2,4]"
"""The driver's JVM runs the tasks, each up to four times: half the CPU time of a start."""
PARTITIONS = 4
START_S = 900.0
CATCH_UP_S = 420.0
PLANTED_CATCH_UP_S = 90.0
DECIDED_S = 180.0
ZOMBIE_S = 120.0
POLL_S = 0.05
DOWN_S = 1.0

UNCOMMITTED_READER, RECORDS_LOST = "uncommitted-reader", "records-lost"
"""Planted bugs of brokers: readers of committed records get others too; a log loses its start."""
DRIVER, EXECUTOR, TASK = "driver", "executor", "task"
BROKER, COORDINATOR, ZOOKEEPER, ZOMBIE = "broker", "coordinator", "zookeeper", "zombie"
PLACES = (LOCAL_MASTER, EXECUTORS_MASTER)
VICTIMS = (TASK, EXECUTOR, DRIVER, ZOMBIE, BROKER, COORDINATOR, ZOOKEEPER)


def master_for(victim: str) -> str:
    """The cheapest Spark that has such a victim."""
    return EXECUTORS_MASTER if victim == EXECUTOR else LOCAL_MASTER


def hooked(folder: Path) -> dict[str, str]:
    """The environment of brokers and programs whose processes have the crash points."""
    path = os.pathsep.join([str(HOOKS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"HEADWATER_SPARK_POINTS": str(folder), "PYTHONPATH": path}


class StuckError(AssertionError):
    """The query did not go on."""


class Points:
    """The crash points of the hooks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arm(self, point: str) -> None:
        """The next process that comes to the point stands still there."""
        for end in ("reached", "released", "taken"):
            (self.folder / f"{point}.{end}").unlink(missing_ok=True)
        (self.folder / f"{point}.armed").touch()

    def reached(self, point: str) -> int | None:
        """The process that stands at the point."""
        path = self.folder / f"{point}.reached"
        return int(path.read_text()) if path.exists() else None

    def release(self, point: str) -> None:
        """Let it go on; later ones pass."""
        (self.folder / f"{point}.armed").unlink(missing_ok=True)
        (self.folder / f"{point}.released").touch()

    def commits(self) -> dict[int, float]:
        """Epoch -> when its first commit began."""
        first: dict[int, float] = {}
        for path in self.folder.glob("commits-*.jsonl"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                first[row["epoch"]] = min(row["at_s"], first.get(row["epoch"], row["at_s"]))
        return first


class Tail:
    """A reader of committed records that reads while everything else happens."""

    def __init__(self, bootstrap: str, topic: str, isolation: str = judge.COMMITTED) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._isolation = isolation
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="tail", daemon=True)
        self.seen: list[Seen] = []
        self.errors: list[BaseException] = []

    def __enter__(self) -> Tail:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _read(self) -> None:
        try:
            with judge.Reader(self._bootstrap, self._topic, self._isolation) as reader:
                while not self._stopping.is_set():
                    before = len(reader.rows)
                    reader.advance(0.05)
                    now = time.time()
                    new = reader.rows[before:]
                    self.seen += [Seen(now, row.value.decode()) for row in new]
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self.errors.append(error)

    def values(self) -> set[str]:
        """What was seen so far."""
        if self.errors:
            raise self.errors[0]
        return {row.value for row in list(self.seen)}


class Tails:
    """A `Tail` of each output topic."""

    def __init__(
        self, bootstrap: str, topics: Iterable[str], isolation: str = judge.COMMITTED
    ) -> None:
        self._tails = {topic: Tail(bootstrap, topic, isolation) for topic in topics}

    def __enter__(self) -> Tails:
        for tail in self._tails.values():
            tail.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for tail in self._tails.values():
            tail.__exit__(*error)

    def rows(self) -> set[tuple[str, str]]:
        """(topic, value) of what was seen so far."""
        return {(name, value) for name, tail in self._tails.items() for value in tail.values()}

    def seen(self, topic: str) -> list[Seen]:
        """What was seen of a topic, in the order of its arrival."""
        return list(self._tails[topic].seen)


class QueryUnderTest:
    """A query that is killed and started again, with its cluster, its input and its output."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        cluster: LocalCluster,
        plant: str = "",
        master: str = EXECUTORS_MASTER,
    ) -> None:
        """`folder` has the points of the cluster's brokers in `points`."""
        self.kind, self.folder, self.cluster, self._plant = kind, folder, cluster, plant
        self._master = master
        self.points = Points(folder / "points")
        self.source, self.output = f"{kind}-in", f"{kind}-out"
        self.outputs = {self.output: 1}
        """Output topic -> it has one of so many rows."""
        if kind == BOTH:
            self.outputs[self.output + ALERTS] = EVERY
        self.count = self.restarts = self._programs = 0
        self.catch_up_s = CATCH_UP_S
        self._zombie: KillableProgram | None = None
        self.program = self._new_program()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def __enter__(self) -> QueryUnderTest:
        for topic in (self.source, *self.outputs):
            create_topic(self.cluster.bootstrap, topic, PARTITIONS)
        self.program.start()
        return self

    def __exit__(self, *_error: object) -> None:
        for program in (self._zombie, self.program):
            if program is not None:
                program.kill()

    def _new_program(self) -> KillableProgram:
        self._programs += 1
        command = [
            *(sys.executable, "-m", "suites.spark_pipeline", self.kind, self.cluster.bootstrap),
            *(self.source, self.output, str(self.folder), self._master),
        ]
        local = self.folder / "local"
        environment = {"HEADWATER_SPARK_PLANT": self._plant, "SPARK_LOCAL_DIRS": str(local)}
        log = self.folder / f"query-{self._programs}.log"
        return KillableProgram(command, log, environment)

    def feed(self, rows: int) -> None:
        """Write input rows; returns when they are acknowledged."""
        for number in range(self.count, self.count + rows):
            self._producer.produce(
                self.source,
                str(number).encode(),
                key=spark_judge.key_of(number).encode(),
                partition=number % PARTITIONS,
            )
            self._producer.poll(0)
        left = self._producer.flush(120)
        assert left == 0, f"{left} input rows are not acknowledged"
        self.count += rows

    def wait_for(self, what: str, holds: Callable[[], bool], timeout_s: float) -> None:
        """Poll; start the query again when it has ended by itself. Raises StuckError."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            self.restarts += self.program.restart_if_ended()
            if time.monotonic() > deadline:
                raise StuckError(f"{what}: not within {timeout_s} s\n{self.program.last_words()}")
            time.sleep(POLL_S)

    def restarts_inside(self) -> int:
        """Queries that failed and were started again by their driver."""
        path = self.folder / RESTARTED
        return len(path.read_text().splitlines()) if path.exists() else 0

    def wake_plant(self) -> None:
        """Let the planted bug begin; then a query that stands still is soon given up."""
        if self._plant:
            (self.points.folder / "planted").touch()
            self.catch_up_s = PLANTED_CATCH_UP_S

    def lose_records(self) -> None:
        """The planted bug of brokers whose log loses its start."""
        if self._plant == RECORDS_LOST:
            row = judge.rows(self.cluster.bootstrap, self.output)[0]
            with Admin(self.cluster.bootstrap) as admin:
                admin.delete_records({TopicPartition(self.output, row.partition): row.offset + 1})

    def merge(self, merges: bool) -> None:
        """Whether the micro-batches from now on are merged into the table, or appended."""
        path = self.folder / MERGING
        if merges:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    def wait_for_output(self, tails: Tails, timeout_s: float | None = None) -> None:
        """Until every input row so far is in the output topics."""
        expected = {
            (topic, spark_judge.transformed(number))
            for topic, every in self.outputs.items()
            for number in range(0, self.count, every)
        }
        self.wait_for("all rows", lambda: expected <= tails.rows(), timeout_s or self.catch_up_s)

    # -- victims

    def strike(self, victim: str, holder: int) -> Callable[[], None]:
        """Kill the victim; the function that brings it back. `holder` stands at the point."""
        match victim:
            case "driver":
                self.program.kill()
                return self.program.start
            case "zombie":
                self._zombie = self.program
                self._zombie.signal(signal.SIGSTOP)
                self.program = self._new_program()
                return self.program.start
            case "executor":
                spark_processes.kill(spark_processes.executors(self.program.pid))
            case "task":
                workers = spark_processes.python_workers(self.program.pid)
                spark_processes.kill([holder] if holder in workers else workers)
            case "broker" | "coordinator":
                return self._strike_broker(is_coordinator=victim == COORDINATOR)
            case "zookeeper":
                self.cluster.kill_zookeeper()
                return self._zookeeper_back
            case _:
                raise ValueError(f"no victim is called {victim!r}")
        return _nothing

    def _strike_broker(self, *, is_coordinator: bool) -> Callable[[], None]:
        sink = self.sink()
        coordinator = 0 if sink is None else sink.coordinator
        leaders = [
            leader
            for partition in range(PARTITIONS)
            if (leader := self.cluster.leader_of(self.output, partition)) != coordinator
        ]
        broker = coordinator if is_coordinator or not leaders else leaders[0]
        self.cluster.kill_broker(broker)

        def back() -> None:
            time.sleep(DOWN_S)
            self.cluster.restart(broker)

        return back

    def _zookeeper_back(self) -> None:
        time.sleep(DOWN_S)
        self.cluster.restart_zookeeper()

    def wake_zombie(self) -> list[Finding]:
        """Let the driver go on that stood still while another one took its place. It must end by
        itself, at the latest with its next batch."""
        if self._zombie is None:
            return []
        zombie, self._zombie = self._zombie, None
        with (self.folder / SUPERSEDED).open("a") as out:
            out.write(f"{zombie.pid}\n")
        zombie.signal(signal.SIGCONT)
        return end_of_zombie(zombie, ZOMBIE_S, self._keep_running)

    def _keep_running(self) -> None:
        self.restarts += self.program.restart_if_ended()

    # -- the end

    def sink(self) -> SinkDescription | None:
        """The query's sink as its coordinator describes it; None before its first epoch."""
        path = self.folder / "checkpoint" / "metadata"
        if not path.exists():
            return None
        with EpochClient(self.cluster.bootstrap) as client:
            return client.describe(json.loads(path.read_text())["id"])

    def epochs_of_values(self) -> dict[str, int]:
        """Output value -> its epoch, by the offsets in the query's checkpoint."""
        found: dict[str, int] = {}
        ends: list[tuple[int, Mapping[str, int]]] = []
        files = [p for p in (self.folder / "checkpoint" / "offsets").iterdir() if p.name.isdigit()]
        for path in sorted(files, key=lambda p: int(p.name)):
            to = json.loads(path.read_text().splitlines()[2])["to"]
            ends.append((int(path.name), to.get(self.source, {})))
        for row in judge.rows(self.cluster.bootstrap, self.source):
            for epoch, to in ends:
                if row.offset < to.get(str(row.partition), 0):
                    found[spark_judge.transformed(int(row.value))] = epoch
                    break
        return found

    def judged(self, tails: Tails) -> list[Finding]:
        """What is wrong with the output, now that every fault is over."""
        deadline = time.monotonic() + DECIDED_S
        while (sink := self.sink()) and sink.epochs and time.monotonic() < deadline:
            time.sleep(POLL_S)  # an epoch that nobody writes any more has a deadline
        begun = self.points.commits()
        commits_s = {
            value: begun[epoch]
            for value, epoch in self.epochs_of_values().items()
            if epoch in begun
        }
        found = []
        for name, every in self.outputs.items():
            rows = judge.rows(self.cluster.bootstrap, name)
            topic = [
                Output(r.partition, r.offset, (r.key or b"").decode(), r.value.decode())
                for r in rows
            ]
            table = self._table() if every == 1 else None
            found += spark_judge.judged(
                self.count, topic, tails.seen(name), table, commits_s, name=name, every=every
            )
        for epoch in () if sink is None else sink.epochs:
            found.append(Finding(spark_judge.OPEN, f"epoch {epoch.epoch} is {epoch.state}"))
        return found

    def _table(self) -> list[str] | None:
        """The values of the query's table, if it has one."""
        if self.kind != BOTH:
            return None
        data = deltalake.DeltaTable(str(self.folder / "table")).to_pyarrow_table()
        values: list[str] = data.column("value").to_pylist()
        return values


def end_of_zombie(
    zombie: KillableProgram, timeout_s: float, meanwhile: Callable[[], object]
) -> list[Finding]:
    """Wait until a program has ended by itself; the finding if it has to be killed."""
    deadline = time.monotonic() + timeout_s
    found: list[Finding] = []
    while zombie.exit_code() is None and not found:
        meanwhile()
        if time.monotonic() > deadline:
            said = f"the zombie did not end within {timeout_s:g} s\n{zombie.last_words()}"
            found.append(Finding(spark_judge.STUCK, said))
        time.sleep(POLL_S)
    zombie.kill()
    return found


def _nothing() -> None:
    """Nothing comes back: Spark starts executors and tasks itself."""
