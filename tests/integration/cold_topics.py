"""Topics whose records are in their Delta tables only, on a cluster of one broker; no Spark.

A value is `<word>-<offset>`, so that a record at a wrong offset, or of a former topic, shows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition

from headwater import Producer
from headwater.client.blocking.record_client import EARLIEST, LATEST
from headwater.client.values import NewTopic
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.offset_ranges import PartitionBounds, plan_ranges
from headwater_tier.service.engine import Engine, build
from headwater_tier.service.options import ServiceOptions
from headwater_tier.stream_fetch import StreamFetch
from headwater_tier.table_location import locate, locate_table
from headwater_tier.table_names import TableLocation
from integration.cluster import LocalCluster

PROPERTIES = {
    "log.retention.check.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
TIERED = {
    "remote.storage.enable": "true",
    "delta.interval.ms": "50",
    "retention.ms": "-1",
    "file.delete.delay.ms": "100",
}
BATCH = 10
CLIENT_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Found:
    """What a consumer got from a partition, from the first offset asked for on."""

    values: list[bytes]
    error: str = ""
    """The first error, after these records; empty: it read to the end."""


class Deadline:
    """Pauses between looks at something that must come to hold within CLIENT_WAIT_S."""

    def __init__(self) -> None:
        self._clock, self._pause = SystemClock(), threading.Event()
        self._at = self._clock.monotonic() + CLIENT_WAIT_S

    def pause(self, what: str) -> None:
        """Wait a moment. Fails with `what` when the time is over."""
        assert self._clock.monotonic() < self._at, f"never: {what}"
        self._pause.wait(0.05)


class ColdCluster:
    """One broker, and topics that a test tiers by hand or with `serving`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def create(self, *names: str, partitions: int = 1) -> None:
        with self.cluster.admin() as admin:
            admin.create_topics([NewTopic(n, partitions, 1, configs=TIERED) for n in names])

    def location(self, name: str) -> TableLocation:
        with self.cluster.admin() as admin:
            return locate(admin, name)

    def send(
        self, *names: str, word: str = "value", partition: int = 0, count: int = BATCH
    ) -> None:
        with self.cluster.admin() as admin:
            ends = admin.list_offsets({(name, partition): -1 for name in names})
        with Producer(self.bootstrap) as producer:
            for (name, _), end in ends.items():
                for offset in range(end.offset, end.offset + count):
                    producer.send(name, value(offset, word), partition=partition)

    def tier(self, *names: str) -> None:
        """Commit what is not in the topics' tables yet: one file and one commit each."""
        options, clock = ServiceOptions(self.bootstrap), SystemClock()
        brokers, client = options.brokers(), options.client()
        for name, topic in brokers.topics(names).items():
            at, found = locate_table(brokers, topic), [(name, p) for p in range(topic.partitions)]
            starts = brokers.list_offsets(dict.fromkeys(found, EARLIEST))
            ends = brokers.list_offsets(dict.fromkeys(found, LATEST))
            bounds = {tp[1]: PartitionBounds(starts[tp], ends[tp]) for tp in found}
            ranges = plan_ranges(ensure_table(at, topic.partitions), bounds)
            fetch = StreamFetch(client, name, ranges, topic.uuid)
            facts = tier_range(fetch, ranges, at, clock=clock, entropy=SystemEntropy())
            assert facts is not None
            commit_facts(at, ranges, [facts], clock=clock)
        client.close()
        brokers.close()

    def engine(self) -> Engine:
        return build(ServiceOptions(self.bootstrap), SystemClock(), SystemEntropy())

    def once(self) -> Engine:
        """A service, until all is tiered or has failed."""
        made = self.engine()
        made.run(threading.Event(), once=True)
        return made

    @contextmanager
    def serving(self) -> Iterator[Engine]:
        """A service that runs."""
        made, stop = self.engine(), threading.Event()
        runner = threading.Thread(target=made.run, args=(stop,))
        runner.start()
        try:
            yield made
        finally:
            stop.set()
            runner.join()

    def keep_nothing(self, *names: str) -> None:
        """Have the broker delete local records as soon as they are in the table."""
        with self.cluster.admin() as admin:
            for name in names:
                admin.alter_configs("topic", name, {"local.retention.ms": "1"})

    def local_start(self, name: str, partition: int = 0) -> int:
        """The first offset that the broker has a local record of."""
        rows = self.cluster.status(0)["hosted"]["partitions"]
        found = [r for r in rows if (r["topic"], r["partition"]) == (name, partition)]
        return int(found[0]["local_log_start_offset"])

    def make_cold(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Have the broker delete every local record of these topics, and wait until it has."""
        self.keep_nothing(*ends)
        wanted = {(name, p): end for name, rows in ends.items() for p, end in rows.items()}

        def is_cold() -> bool:
            rows = self.cluster.status(0)["hosted"]["partitions"]
            local = {(r["topic"], r["partition"]): r["local_log_start_offset"] for r in rows}
            return all(local[key] == end for key, end in wanted.items())

        self.hint(*ends)
        self.cluster.wait_until(is_cold, "no local record is left", CLIENT_WAIT_S)

    def hint(self, *names: str) -> None:
        """Have the broker read the newest version of the topics' tables, as the service does."""
        brokers = ServiceOptions(self.bootstrap).brokers()
        try:
            for topic in brokers.topics(names).values():
                brokers.hint(topic)
        finally:
            brokers.close()

    def read(self, name: str, end: int, *, start: int = 0, partition: int = 0) -> Found:
        """Read [start, end) with librdkafka; up to the first error."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
            }
        )
        deadline, values = Deadline(), list[bytes]()
        consumer.assign([TopicPartition(name, partition, start)])
        try:
            while len(values) < end - start:
                message = consumer.poll(0.1)
                if message is None:
                    deadline.pause(f"{name}: more than {len(values)} records")
                    continue
                error = message.error()
                if error is not None:
                    return Found(values, f"{error.name()}: {error.str()}")
                found = message.value()
                assert message.offset() == start + len(values) and isinstance(found, bytes)
                values.append(found)
            return Found(values)
        finally:
            consumer.close()

    def kill_reader(self) -> None:
        """Kill the broker's process that reads tables: the next one has no version open."""
        for child in psutil.Process(self.cluster.pid(0)).children(recursive=True):
            if any("remote_log_worker" in word for word in child.cmdline()):
                child.kill()


def value(offset: int, word: str = "value") -> bytes:
    return b"%s-%d" % (word.encode(), offset)


def whole(end: int, *, start: int = 0, word: str = "value") -> Found:
    """What a consumer must get of an undamaged range."""
    return Found([value(offset, word) for offset in range(start, end)])


@contextmanager
def cold_cluster(folder: Path, base_port: int) -> Iterator[ColdCluster]:
    """A new cluster."""
    with LocalCluster(folder, base_port, 1, PROPERTIES) as running:
        yield ColdCluster(running)
