"""Flow 6, disaster recovery: a mirror to a second site, the loss of the first, and the switch.

The mirror copies the data topics and nothing else: instructions stay at their site. It is
asynchronous, so its newest records are lost with site A; the devices' spools keep what its position
has not passed, and send it again to site B, whose tables store each record once by its id.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from city.fields import DATA_TOPICS, FACES, TOPICS, VEHICLES
from city.flows import City, Figure, Site, shown
from headwater import Admin, NewTopic
from headwater.errors import HeadwaterError
from headwater.mirror.config import MirrorConfig, load_config
from headwater.mirror.status import mirror_positions
from headwater_spark import Cluster

FLOW = "disaster recovery"
LOST_AT_H = 21.0
POSITIONS_EVERY_S = 1.0
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 30.0
ACKED_AGAIN_TIMEOUT_S = 60.0
SWITCH_MAX_S = 30.0
MOVED_MAX_S = 120.0
POLL_S = 0.05
CAPTURES = {VEHICLES: "vehicles", FACES: "faces"}

ByTopic = dict[str, dict[int, int]]


class Sites:
    """The flow: site B, its mirror, and the day on which it takes over."""

    name = FLOW

    def __init__(self, cluster: Cluster, port: int) -> None:
        """`cluster` is site A; `port` the first port of site B."""
        self._cluster = cluster
        self._port = port
        self._stopping = threading.Event()
        self._positions: ByTopic = {}
        self._mirror: subprocess.Popen[bytes] | None = None
        self._tail = self._passed = 0
        self._switch_s = self._moved_s = float("inf")
        self._has_run = False

    def start(self, city: City) -> None:
        """Start site B and the mirror; plan the loss of site A."""
        self._city = city
        city.site = replace(city.site, is_mirrored=True)
        city.sites[-1] = city.site
        folder = city.out / "site-b"
        self._headwater("up", "--brokers", "1", "--dir", str(folder), "--port", str(self._port))
        self._site_b = Site(
            "B",
            f"127.0.0.1:{self._port}",
            city.out / "tables-B",
            {"kafka.bootstrap.servers": f"127.0.0.1:{self._port}"},
            is_successor=True,
        )
        atexit.register(self._end_leftovers)
        create_own_topics(self._site_b.servers)
        self._start_mirror(city.site.servers)
        city.mirrored = lambda: self._positions
        city.schedule.at(LOST_AT_H, "the loss of site A", self._lose)

    def _start_mirror(self, source: str) -> None:
        self._file = self._city.out / "mirror.properties"
        rows = {
            "source.bootstrap.servers": source,
            "target.bootstrap.servers": self._site_b.servers,
            "topics": ",".join(DATA_TOPICS),
            "mirror.id": "city",
            "mirror.buckets": "2",
            "replication.factor": "1",
            "refresh.topics.interval.seconds": "1",
            "sync.group.offsets.enabled": "false",
        }
        self._file.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
        log = (self._city.out / "mirror.log").open("ab")
        command = [sys.executable, "-m", "headwater", "mirror", "run", "--config", str(self._file)]
        self._mirror = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        config = load_config(str(self._file))
        self._wait(lambda: self._has_topics(), "the mirror has not created the data topics")
        self._thread = threading.Thread(
            target=self._follow, args=(config,), name="city-mirror", daemon=True
        )
        self._thread.start()

    def _has_topics(self) -> bool:
        with Admin(self._site_b.servers) as admin:
            return set(DATA_TOPICS) <= set(admin.list_topics())

    def _wait(self, is_so: Callable[[], bool], problem: str) -> None:
        clock = self._city.clock.clock
        until_s = clock.monotonic() + START_TIMEOUT_S
        while not is_so():
            has_ended = self._mirror is not None and self._mirror.poll() is not None
            if has_ended or clock.monotonic() > until_s:
                raise HeadwaterError(f"{problem}: see {self._city.out / 'mirror.log'}")
            threading.Event().wait(POLL_S * 10)

    def _follow(self, config: MirrorConfig) -> None:
        """Ask site B, again and again, how far the mirror has passed site A's log."""
        while not self._stopping.wait(POSITIONS_EVERY_S):
            self._positions = read_positions(config)

    def _lose(self) -> None:
        """Site A dies: its brokers at once, its jobs, its mirror. Then everything moves."""
        city, clock = self._city, self._city.clock.clock
        lost_s = clock.monotonic()
        for broker in self._cluster.brokers:
            if broker.pid is not None:
                os.kill(broker.pid, signal.SIGKILL)
        self._cluster.stop()  # its supervisor would start the brokers again
        self._end_mirror()
        self._positions = read_positions(load_config(str(self._file)))
        self._passed = sum(sum(self._positions.get(topic, {}).values()) for topic in CAPTURES)
        self._tail = max(0, city.ledger.acked_count - self._passed)
        watching = threading.Thread(target=self._await_acks, args=(lost_s,))
        watching.start()
        city.switch(self._site_b)
        watching.join()
        self._moved_s = clock.monotonic() - lost_s
        self._has_run = True

    def _await_acks(self, lost_s: float) -> None:
        """Measure the time from the loss to the first acknowledgement of site B."""
        clock = self._city.clock.clock
        while self._city.site is not self._site_b:
            threading.Event().wait(POLL_S)
        acked = self._city.ledger.acked_count
        while self._city.ledger.acked_count <= acked:
            if clock.monotonic() > lost_s + ACKED_AGAIN_TIMEOUT_S:
                return
            threading.Event().wait(POLL_S)
        self._switch_s = clock.monotonic() - lost_s

    def _end_mirror(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._mirror is not None:
            self._mirror.kill()
            self._mirror.wait(END_TIMEOUT_S)

    def stop(self) -> None:
        """End the mirror. Site B serves the proof, and ends with the program."""
        if not self._stopping.is_set():
            self._end_mirror()

    def _end_leftovers(self) -> None:
        """Neither the mirror nor site B outlives the program, however it ends."""
        if self._mirror is not None:
            self._mirror.kill()
        self._headwater("down", "--dir", str(self._city.out / "site-b"))

    def _headwater(self, *words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "headwater", *words],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise HeadwaterError(f"headwater {words[0]}: {done.stderr.strip()[-500:]}")

    def figures(self) -> Sequence[Figure]:
        """Rows at site B = records produced; the tail that the mirror had not passed."""
        city = self._city
        rows = []
        for topic in CAPTURES:
            truth = city.world.vehicles if topic == VEHICLES else city.world.faces
            normal = int((~truth.abnormal).sum())
            table = city.spark.read.format("delta").load(self._site_b.table(topic))
            count = table.count()
            distinct = table.select("record_id").distinct().count()
            found = f"{count:,} rows, {count - distinct:,} twice"
            name = f"{CAPTURES[topic]} at site B"
            oracle = f"{normal:,} rows, 0 twice"
            rows.append(Figure(FLOW, name, oracle, found, count == distinct == normal))
        mirrored = set(self._positions)
        only_data = {VEHICLES, FACES} <= mirrored <= set(DATA_TOPICS)
        name = "topics mirrored: data, no instructions"
        rows.append(Figure(FLOW, name, shown(DATA_TOPICS), shown(mirrored), only_data))
        said = f"{self._passed:,} mirrored, {self._tail:,} only in spools"
        rows.append(Figure(FLOW, "acknowledged at site A when it died", "", said, self._has_run))
        rows.append(
            Figure.at_most(
                FLOW, "loss to the first ack of site B", SWITCH_MAX_S, self._switch_s, "s"
            )
        )
        name = "loss to all flows at site B"
        rows.append(Figure.at_most(FLOW, name, MOVED_MAX_S, self._moved_s, "s"))
        return rows


def create_own_topics(servers: str) -> None:
    """The topics of site B that are no copies: instructions and reports."""
    plans = [plan for plan in TOPICS if not plan.is_data]
    with Admin(servers) as admin:
        admin.create_topics(
            [NewTopic(plan.name, plan.partitions, 1, configs=plan.configs) for plan in plans]
        )


def read_positions(config: MirrorConfig) -> ByTopic:
    """Topic -> partition -> the offset at the source before which everything is at the target."""
    found: ByTopic = {}
    for tp, position in asyncio.run(mirror_positions(config)).items():
        found.setdefault(tp.topic, {})[tp.partition] = position.next_offset
    return found
