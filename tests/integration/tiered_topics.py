"""The tiering tests' topics: fill them, tier, delete local segments, read with librdkafka."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from headwater.system import SystemClock
from headwater_spark.tiering.command import drain
from headwater_spark.tiering.job import Round, TopicTier
from integration.cluster import LocalCluster

CODE = "import sys; from headwater.cli.main import main; sys.exit(main(sys.argv[1:]))"


COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


LOCAL_WAIT_S = 30.0


CLIENT_WAIT_S = 60.0


class Row(NamedTuple):
    """A record as a client returns it."""

    partition: int
    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def cli(
    *arguments: str, ok: bool = True, within_s: float = 180.0
) -> subprocess.CompletedProcess[str]:
    """Run a `headwater` command to its end."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert not ok or done.returncode == 0, done.stdout + done.stderr
    return done


def tier(cluster: LocalCluster, *topics: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
    return cli("tier", "run", *topics, *at(cluster), "--master", "local[2]", ok=ok)


def verify(cluster: LocalCluster, topic: str) -> dict[str, Any]:
    """The report of `headwater verify`, which must be equal."""
    found: dict[str, Any] = json.loads(cli("verify", topic, *at(cluster), "--json").stdout)
    assert found["equal"], found
    return found


def at(cluster: LocalCluster) -> tuple[str, str]:
    return ("--bootstrap-server", cluster.bootstrap)


def create(cluster: LocalCluster, name: str, partitions: int = 1, **configs: str) -> str:
    settings = {"retention_ms": "-1", "remote_storage_enable": "true", **configs}
    return cluster.create_topic(name, partitions, 3, **settings)


def configure(cluster: LocalCluster, topic: str, **configs: str) -> None:
    rows = {key.replace("_", "."): value for key, value in configs.items()}
    with cluster.admin() as admin:
        admin.alter_configs("topic", topic, rows)


def produce(cluster: LocalCluster, topic: str, end: int, first: int = 0) -> None:
    """Records `first` to `end` - 1, of every shape, a fifth of them in each compression."""
    share = -(-(end - first) // len(COMPRESSIONS))
    for number, compression in enumerate(COMPRESSIONS):
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "compression.type": compression,
                "enable.idempotence": True,
                "linger.ms": 20,
            }
        )
        begin = first + number * share
        for i in range(begin, min(end, begin + share)):
            producer.produce(topic, **_record(i))
            producer.poll(0)
        assert producer.flush(CLIENT_WAIT_S) == 0


def _record(i: int) -> dict[str, Any]:
    headers: list[tuple[str, bytes | None]] = []
    if i % 3 == 0:
        headers = [("n", b"%d" % i), ("n", b""), ("none", None), ("größe", b"\x00\xff")]
    return {
        "key": (None, b"", b"k%d" % (i % 97))[i % 3],
        "value": None if i % 11 == 0 else (b"" if i % 13 == 0 else b"value %d " % i + b"x" * 80),
        "headers": headers,
        "timestamp": 1_600_000_000_000 + (i * 7919) % 1_000_000,
    }


def consume(
    cluster: LocalCluster, topic: str, ends: dict[int, int], starts: dict[int, int] | None = None
) -> list[Row]:
    """All records of [starts, ends), by a stock client that checks CRCs."""
    consumer = Consumer(_consumer_settings(cluster))
    reached = {p: (starts or {}).get(p, 0) for p in ends}
    # A partition without a record has no offset 0 once it is restored: its log begins higher.
    consumer.assign([TopicPartition(topic, p, at) for p, at in reached.items() if at < ends[p]])
    rows: list[Row] = []
    deadline = time.monotonic() + CLIENT_WAIT_S
    while any(reached[p] < end for p, end in ends.items()):
        assert time.monotonic() < deadline, f"{topic}: stuck at {reached} of {ends}"
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            rows.append(_row(message))
            reached[rows[-1].partition] = rows[-1].offset + 1
    consumer.close()
    return sorted(row for row in rows if row.offset < ends[row.partition])


def _consumer_settings(cluster: LocalCluster) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "fetch.queue.backoff.ms": 10,
    }


def _row(message: Message) -> Row:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    value: Any = message.value()
    key: Any = message.key()
    headers: Any = tuple(message.headers() or ())
    return Row(partition, offset, message.timestamp(), key, value, headers)


def ends_of(cluster: LocalCluster, topic: str, partitions: int = 1) -> dict[int, int]:
    consumer = Consumer(_consumer_settings(cluster))
    found = {}
    for p in range(partitions):
        found[p] = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1]
    consumer.close()
    return found


def replica(cluster: LocalCluster, broker_id: int, topic: str, partition: int = 0) -> Any:
    """One hosted replica in its broker's status document."""
    rows = cluster.status(broker_id)["hosted"]["partitions"]
    return next(r for r in rows if (r["topic"], r["partition"]) == (topic, partition))


def replicas(cluster: LocalCluster, topic: str, partition: int = 0) -> list[Any]:
    return [replica(cluster, b, topic, partition) for b in range(3)]


def make_cold(cluster: LocalCluster, topic: str, ends: dict[int, int]) -> float:
    """Set local retention to 1 ms and wait until no replica has a byte; the seconds it took."""
    configure(cluster, topic, local_retention_ms="1")

    def is_cold() -> bool:
        rows = [r for p in ends for r in replicas(cluster, topic, p)]
        return all(
            r["size_bytes"] == 0 and r["local_log_start_offset"] == ends[r["partition"]]
            for r in rows
        )

    return cluster.wait_until(is_cold, f"local bytes of {topic} gone", LOCAL_WAIT_S)


def local_bytes(cluster: LocalCluster, topic: str) -> int:
    """Bytes of record files on all disks, by the file system itself."""
    found = cluster.directory.glob(f"broker-*/**/{topic}-[0-9]*/*.log")
    return sum(path.stat().st_size for path in found)


def table_of(cluster: LocalCluster, topic: str) -> Path:
    return next(cluster.directory.glob(f"**/tables/{topic}-*/_delta_log")).parent


def tier_here(cluster: LocalCluster, spark: Any, topic: str) -> tuple[list[Round], TopicTier]:
    """Tier as `headwater tier run` does, in this process: its rounds, and the closed TopicTier."""
    job, rounds = TopicTier(spark, topic, cluster.bootstrap, SystemClock()), list[Round]()
    drain(job, rounds.append)
    job.close()
    return rounds, job


def tiered_and_cold(cluster: LocalCluster, spark: Any, topic: str, count: int = 600) -> list[Row]:
    """Make a topic with all records in the table and no local byte; its rows."""
    create(cluster, topic, file_delete_delay_ms="100")
    produce(cluster, topic, count)
    ends = {0: count}
    rows = consume(cluster, topic, ends)
    tier_here(cluster, spark, topic)
    make_cold(cluster, topic, ends)
    assert consume(cluster, topic, ends) == rows
    return rows


def first_error(cluster: LocalCluster, topic: str, within_s: float) -> KafkaError:
    """The error of a client that reads from offset 0; no record may come first."""
    consumer = Consumer(_consumer_settings(cluster))
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + within_s
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None:
                error = message.error()
                assert error is not None, f"offset {message.offset()} was served"
                return error
    finally:
        consumer.close()
    raise AssertionError(f"no error within {within_s} s")


def log_texts(cluster: LocalCluster) -> str:
    return "".join(cluster.log_text(b) for b in range(3))


@contextmanager
def producing(cluster: LocalCluster, topic: str, partitions: int) -> Iterator[list[int]]:
    """Numbered values, a few thousand a second; yields a list whose one item counts the acks."""
    acked, stop = [0], threading.Event()

    def run() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            assert error is None, error
            acked[0] += 1

        first = 0
        while not stop.wait(0.02):
            for i in range(first, first + 60):
                producer.produce(
                    topic, b"%d" % i, partition=i % partitions, on_delivery=on_delivery
                )
            first += 60
            producer.poll(0)
        producer.flush(CLIENT_WAIT_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield acked
    finally:
        stop.set()
        thread.join()


def start_tier_job(cluster: LocalCluster, topic: str, *more: str) -> subprocess.Popen[bytes]:
    """Start a tier job whose driver, JVM and workers are one process group."""
    command = [sys.executable, "-c", CODE, "tier", "run", topic, *at(cluster)]
    command += ["--master", "local[2]", *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
