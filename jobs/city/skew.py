"""Key choice: how evenly the vehicles' partitions are filled by plate, by device, by district.

By plate is how the city produces: figures are the topic's own. The other keys are tried with a
part of the same records in topics made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from city.feeds import KEY, VehicleFeed, plate
from city.fields import ABNORMAL
from city.flows import City, Figure
from headwater import Admin, Consumer, NewTopic, Producer, TopicPartition

FLOW = "key choice"
PARTITIONS = 6
SAMPLE = 60_000
TIMEOUT_S = 30.0
SEED = 0x9747B28C
FACTOR = 0x5BD1E995
MASK = 0xFFFFFFFF


def skew(counts: Sequence[int]) -> float:
    """The fullest partition's records over the mean: 1 is even."""
    return max(counts) * len(counts) / max(sum(counts), 1)


class Skew:
    """The flow; it has nothing to do while the day runs."""

    name = FLOW

    def start(self, city: City) -> None:
        """Remember the city."""
        self._city = city

    def stop(self) -> None:
        """Nothing runs."""

    def figures(self) -> Sequence[Figure]:
        """Records per partition, found in topics, against the partitions that Kafka's default
        partitioner (murmur2) gives the same keys."""
        city, truth = self._city, self._city.world.vehicles
        servers = city.site.servers
        figures: list[Figure] = []
        rows = np.arange(min(SAMPLE, len(truth)))
        for name, keys in sample_keys(city, rows).items():
            found = _tried(servers, f"keys-{len(figures)}", keys)
            expected = partition_counts(keys)
            oracle, text = (f"{skew(counts):.2f} {counts}" for counts in (expected, found))
            figures.append(Figure(FLOW, f"skew by {name}", oracle, text, expected == found))
        return figures


def sample_keys(city: City, rows: Any) -> dict[str, list[str]]:
    """The keys of some vehicles for each choice."""
    table = VehicleFeed(city.world).table(rows)
    cameras, truth = city.world.deployment.cameras, city.world.vehicles
    camera = truth.camera[rows].tolist()
    abnormal = truth.abnormal[rows].tolist()
    cars = truth.who[rows].tolist()
    return {
        "plate, device if abnormal": table[KEY].to_pylist(),
        "plate": [ABNORMAL if bad else plate(n) for n, bad in zip(cars, abnormal, strict=True)],
        "device": [cameras[n].ip for n in camera],
        "district": [cameras[n].district for n in camera],
    }


def _tried(servers: str, topic: str, keys: list[str]) -> list[int]:
    """Send records with these keys; the records in each partition."""
    table = pa.table({KEY: keys, "value": pa.array([b""] * len(keys), pa.binary())})
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
    with Producer(servers, acks="all") as producer:
        producer.send_table(topic, table, key=KEY, value="value").result(TIMEOUT_S)
    return partition_ends(servers, topic, PARTITIONS)


def partition_ends(servers: str, topic: str, partitions: int) -> list[int]:
    """The end offset of each partition: its records, where nothing is transactional."""
    parts = [TopicPartition(topic, n) for n in range(partitions)]
    with Consumer(bootstrap_servers=servers) as consumer:
        ends = consumer.end_offsets(parts)
    return [ends[part] for part in parts]


def partition_counts(keys: Sequence[str]) -> list[int]:
    """Records per partition by Kafka's default partitioner."""
    known = {key: (murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS for key in set(keys)}
    return [int(n) for n in np.bincount([known[key] for key in keys], minlength=PARTITIONS)]


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, as its specification has it."""
    h = SEED ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * FACTOR & MASK
        k = (k ^ k >> 24) * FACTOR & MASK
        h = h * FACTOR & MASK ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * FACTOR & MASK
    h = (h ^ h >> 13) * FACTOR & MASK
    return h ^ h >> 15
