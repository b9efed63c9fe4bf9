"""The mirror and its source are killed at seeded random moments; a judge counts each record."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headwater import Admin, NewTopic, Producer
from headwater.errors import HeadwaterError, KafkaError
from integration.cluster import LocalCluster
from mirror_pair import MirrorProcess, mirrored, payloads, properties, read_all, run_cli, until
from whole_cluster import ServedCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]
SEED = 20261125
KILLS = 20
PARTITIONS = 3


class Writers(threading.Thread):
    """Writes plain records and transactions, of which every third is aborted, until `stop`."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.servers, self.topic = servers, topic
        self.random = random.Random(seed)
        self.error: BaseException | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            with (
                Producer(self.servers, compression_type="lz4", linger_ms=2) as plain,
                Producer(self.servers, transactional_id="w") as writer,
            ):
                number = 0
                while not self._ended.is_set():
                    for _ in range(self.random.randrange(1, 60)):
                        number += 1
                        plain.send(self.topic, b"p%d" % number, partition=number % PARTITIONS)
                    writer.begin_transaction()
                    for _ in range(self.random.randrange(1, 9)):
                        number += 1
                        writer.send(self.topic, b"t%d" % number, partition=number % PARTITIONS)
                    if number % 3:
                        writer.commit_transaction()
                    else:
                        writer.abort_transaction()
                    time.sleep(0.005)
        except (HeadwaterError, OSError) as error:
            self.error = error

    def stop(self) -> None:
        self._ended.set()
        self.join(30)
        assert self.error is None, self.error


def test_a_mirror_killed_twenty_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Two processes share the buckets; each kill is a SIGKILL of one of them."""
    chance = random.Random(SEED)
    with ServedCluster(tmp_path / "a", 1) as a, ServedCluster(tmp_path / "b", 1) as b:
        with Admin(a.bootstrap) as admin:
            admin.create_topics([NewTopic("t", PARTITIONS, 1)])
        mirrors = [
            MirrorProcess(
                tmp_path,
                {
                    **properties(a.bootstrap, b.bootstrap, topics="t"),
                    "group.instance.id": name, "source.fetch.max.bytes": "20000",
                    "commit.bytes": "50000",
                },
                name,
            )
            for name in ("one", "two")
        ]  # fmt: skip
        writers = Writers(a.bootstrap, "t", SEED)
        writers.start()
        try:
            for mirror in mirrors:
                mirror.start()
            for _ in range(KILLS):
                time.sleep(chance.uniform(0.5, 3.0))
                victim = chance.choice(mirrors)
                victim.end(signal.SIGKILL)
                victim.start()
        finally:
            writers.stop()
        until(lambda: mirrored(a.bootstrap, b.bootstrap, "t"), "it catches up", 60)
        ours, theirs = payloads(read_all(b.bootstrap, "t")), payloads(read_all(a.bootstrap, "t"))
        for mirror in mirrors:
            assert mirror.end(signal.SIGTERM) == 0
        assert sum(map(len, ours.values())) > 1000
        assert ours == theirs


class Spool(threading.Thread):
    """A producer that keeps each record until the mirror's position has passed it, as the city's
    do: id -> (partition, offset) once it is acknowledged, else None."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.servers, self.topic = servers, topic
        self.kept: dict[int, tuple[int, int] | None] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        producer = Producer(
            self.servers, linger_ms=1, delivery_timeout_ms=1500, request_timeout_ms=1000,
            max_block_ms=500, retry_backoff_max_ms=100,
        )  # fmt: skip
        number = 0
        while not self._ended.is_set():
            futures = {}
            for _ in range(20):
                number += 1
                self.kept[number] = None
                try:
                    futures[number] = producer.send(
                        self.topic, b"%d" % number, partition=number % PARTITIONS
                    )
                except KafkaError:
                    break
            for sent, future in futures.items():
                try:
                    at = future.result(5)
                    self.kept[sent] = (at.partition, at.offset)
                except KafkaError:
                    continue
        try:
            producer.close()
        except KafkaError:
            pass  # the site is gone

    def stop(self) -> None:
        self._ended.set()
        self.join(30)


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[LocalCluster, LocalCluster]]:
    """Site A, whose broker is killed, and site B."""
    a = LocalCluster(tmp_path / "a", 26000, brokers=1)
    b = LocalCluster(tmp_path / "b", 26400, brokers=1)
    b.spec = replace(b.spec, cluster_id="hwTestClusterBBBBBBBBBB")
    try:
        for site in (a, b):
            site.start()
        yield a, b
    finally:
        for site in (a, b):
            site.stop()


def test_site_a_killed_twenty_times_b_has_once_what_the_position_passed(
    sites: tuple[LocalCluster, LocalCluster], tmp_path: Path
) -> None:
    a, b = sites
    chance = random.Random(SEED)
    tails = 0
    for turn in range(KILLS):
        topic = f"t{turn}"
        with Admin(a.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        given = properties(a.bootstrap, b.bootstrap, topics=topic, mirror_id=topic)
        with MirrorProcess(tmp_path, given, topic) as mirror:
            spool = Spool(a.bootstrap, topic)
            spool.start()
            until(partial(b_has, b.bootstrap, topic), f"the mirror runs: see {mirror.log}")
            time.sleep(chance.uniform(0.0, 1.5))
            a.kill_broker(0)
            spool.stop()
            report = json.loads(run_cli(tmp_path, given, "promote", "--json")[1])
            assert not report["source_reachable"]
            until(lambda m=mirror: m.ended() == 0, "the promoted mirror ends by itself")
        positions = {p["partition"]: p["position"] for p in report["partitions"]}
        at_failover = read_all(b.bootstrap, topic)

        # B is the site now: the spool sends what the position had not passed.
        resent = {
            n for n, at in spool.kept.items() if at is None or at[1] >= positions.get(at[0], 0)
        }
        with Producer(b.bootstrap) as producer:
            for n in sorted(resent):
                producer.send(topic, b"%d" % n, partition=n % PARTITIONS)
        counts = Counter(
            int(r.value or b"") for rows in read_all(b.bootstrap, topic).values() for r in rows
        )
        acked = {n for n, at in spool.kept.items() if at is not None}
        assert all(counts[n] == 1 for n in acked), f"turn {turn}"
        assert set(counts) == set(spool.kept)

        # A is back: B had exactly what came before the position, the report counts the rest.
        a.restart(0)
        theirs = read_all(a.bootstrap, topic)
        exact = json.loads(run_cli(tmp_path, given, "promote", "--json")[1])
        for row in exact["partitions"]:
            p = row["partition"]
            passed = [r for r in theirs[p] if r.offset < row["position"]]
            assert [r.value for r in at_failover[p]] == [r.value for r in passed], f"turn {turn}"
            assert row["gap_records"] == len(theirs[p]) - len(passed)
        tails += exact["gap_records"]
    assert tails > 0, "no kill left a tail: the test shows less than it says"


def b_has(servers: str, topic: str) -> bool:
    """True once some records have arrived."""
    with Admin(servers) as admin:
        if topic not in admin.list_topics():
            return False
    return any(read_all(servers, topic).values())
