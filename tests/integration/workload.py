"""A recorded workload: idempotent acks=all producers, a ledger of what was acknowledged, a check.

    with Workload(bootstrap, "topic", partitions=3) as load:
        ...faults...
    report = load.check()
    assert report.is_clean, report

Every value is `producer:partition:sequence`, so a consumer can tell what is lost (acknowledged,
but not at its offset), what is there twice, and what is out of order.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

FLUSH_S = 90.0
UNKNOWN_OFFSET = -1
READ_S = 60.0
PRODUCER_SETTINGS = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 1,
    "delivery.timeout.ms": 80_000,
    "request.timeout.ms": 5_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log.connection.close": False,
}
"""A client that looks for a new leader at once, so that the broker's share of a gap is seen."""


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledged record. Times are monotonic seconds."""

    value: str
    partition: int
    offset: int
    at: float


@dataclass(slots=True)
class Report:
    """What a check found; the lists hold at most a few examples each."""

    acked: int = 0
    read: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    """Acknowledged at an offset that now holds something else."""
    failed: list[str] = field(default_factory=list)
    """Told to the producer as failed: no loss, but worth a look."""

    @property
    def is_clean(self) -> bool:
        """Nothing lost, twice, moved or out of order."""
        return not (self.lost or self.duplicated or self.reordered or self.moved)


class _Writer(threading.Thread):
    """One producer with its own sequence per partition."""

    def __init__(
        self, load: Workload, name: str, rate_per_s: float, settings: dict[str, object]
    ) -> None:
        super().__init__(name=f"producer-{name}", daemon=True)
        self.load = load
        self.acks: list[Ack] = []
        self.failed: list[str] = []
        self.stopping = threading.Event()
        self.is_done = False
        self._id = name
        self._pause_s = 1 / rate_per_s
        self._producer = Producer(
            PRODUCER_SETTINGS | {"bootstrap.servers": load.bootstrap} | settings
        )

    def run(self) -> None:
        sequence = 0
        while not self.stopping.is_set():
            for partition in range(self.load.partitions):
                self._send(partition, f"{self._id}:{partition}:{sequence}")
            sequence += 1
            self._producer.poll(self._pause_s)
        self._producer.flush(FLUSH_S)
        self.is_done = True
        del self._producer  # ends it: it would have a later cluster on its ports make its topic

    def _send(self, partition: int, value: str) -> None:
        while True:
            try:
                self._producer.produce(
                    self.load.topic,
                    value=value.ljust(self.load.value_bytes, "."),
                    partition=partition,
                    on_delivery=self._told,
                )
                return
            except BufferError:
                self._producer.poll(0.05)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode().rstrip(".")
        if error is not None:
            self.failed.append(f"{value}: {error}")
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        # A retry that the broker already had is acknowledged without an offset.
        offset = UNKNOWN_OFFSET if offset is None else offset
        self.acks.append(Ack(value, partition, offset, time.monotonic()))


class Workload:
    """Producers over every partition of a topic, until stopped."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int = 1,
        producers: int = 2,
        rate_per_s: float = 100.0,
        value_bytes: int = 100,
        **settings: object,
    ) -> None:
        """`settings` go to the producers, with _ for dots."""
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.value_bytes = value_bytes
        rows = {key.replace("_", "."): value for key, value in settings.items()}
        self._writers = [_Writer(self, str(n), rate_per_s, rows) for n in range(producers)]

    def __enter__(self) -> Workload:
        for writer in self._writers:
            writer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """No more sends; wait until each record has its outcome."""
        for writer in self._writers:
            writer.stopping.set()
        for writer in self._writers:
            writer.join(FLUSH_S + 10)
            assert not writer.is_alive(), "a producer does not end"
            assert writer.is_done, "a producer's thread has died: its ledger is not complete"

    @property
    def acks(self) -> list[Ack]:
        """Everything acknowledged so far."""
        return [ack for writer in self._writers for ack in list(writer.acks)]

    def wait_acks(self, more: int, timeout_s: float = 30.0) -> None:
        """Until `more` further records were acknowledged in every partition."""
        start = self._counts()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            now = self._counts()
            if all(now[p] - start[p] >= more for p in range(self.partitions)):
                return
            time.sleep(0.01)
        raise AssertionError(
            f"not {more} more acknowledgements per partition within {timeout_s} s: "
            f"{dict(start)} -> {dict(self._counts())}; failed: {self.failures()[:3]}"
        )

    def _counts(self) -> dict[int, int]:
        counts: dict[int, int] = defaultdict(int)
        for ack in self.acks:
            counts[ack.partition] += 1
        return counts

    def failures(self) -> list[str]:
        """What producers were told as failed."""
        return [line for writer in self._writers for line in writer.failed]

    def longest_gap_s(self, partition: int, since: float, until: float) -> float:
        """The longest time without an acknowledgement in a partition."""
        times = sorted(a.at for a in self.acks if a.partition == partition)
        inside = [since, *(at for at in times if since < at < until), until]
        return max(b - a for a, b in pairwise(inside))

    def check(self) -> Report:
        """Read the topic from its start and compare with the ledger. Call after `stop`."""
        report = Report(failed=self.failures()[:5])
        found: dict[tuple[int, int], str] = {}
        last: dict[tuple[str, int], int] = {}
        seen: set[str] = set()
        for partition in range(self.partitions):
            for offset, value in read_partition(self.bootstrap, self.topic, partition):
                report.read += 1
                found[partition, offset] = value
                if value in seen:
                    report.duplicated.append(f"{value} at {offset}")
                seen.add(value)
                producer, told, sequence = value.split(":")
                key = (producer, int(told))
                if int(told) != partition or int(sequence) < last.get(key, -1):
                    report.reordered.append(f"{value} at {partition}:{offset} after {last[key]}")
                last[key] = int(sequence)
        for ack in self.acks:
            report.acked += 1
            if ack.value not in seen:
                report.lost.append(f"{ack.value} at {ack.partition}:{ack.offset}")
            elif ack.offset >= 0 and found.get((ack.partition, ack.offset)) != ack.value:
                here = found.get((ack.partition, ack.offset))
                report.moved.append(f"{ack.value} at {ack.partition}:{ack.offset}, now {here}")
        for rows in (report.lost, report.duplicated, report.reordered, report.moved):
            if len(rows) > 10:
                rows[10:] = [f"... {len(rows)} in all"]
        return report


def read_partition(bootstrap: str, topic: str, partition: int) -> list[tuple[int, str]]:
    """(offset, value without padding) of a whole partition, from its start to its end now."""
    rows = read_values(bootstrap, topic, partition)
    return [(offset, value.decode().rstrip(".")) for offset, value in rows]


def read_values(bootstrap: str, topic: str, partition: int) -> list[tuple[int, bytes]]:
    """(offset, value) of a whole partition, from its start to its high watermark now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "workload-check",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
            "log_level": 2,
        }
    )
    try:
        where = TopicPartition(topic, partition)
        low, high = _watermarks(consumer, where)
        consumer.assign([TopicPartition(topic, partition, low)])
        rows: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + READ_S
        while (not rows or rows[-1][0] < high - 1) and high > low:
            assert time.monotonic() < deadline, f"read {len(rows)} of {topic}-{partition} to {high}"
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is not None:
                    if error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN:
                        continue
                    raise KafkaException(error)
                rows.append((message.offset() or 0, message.value() or b""))
        return rows
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, where: TopicPartition) -> tuple[int, int]:
    deadline = time.monotonic() + READ_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(where, timeout=5.0)
            return low, high
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
