"""Followers that race and are killed: each record is once in the typed table or in quarantine."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headwater.system import SystemClock
from headwater_tier.typed.follow_log import follow_topic
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.without_registry import WithoutRegistry
from typed_topic import TypedTopic

pytestmark = [pytest.mark.integration, pytest.mark.long]
CONFIGS = {
    "headwater.value.format": "json",
    "headwater.latest.enable": "true",
    "headwater.latest.interval.ms": "300",
}
FOLLOWERS, PARTITIONS, KEYS = 3, 3, 40
SECONDS = 60.0
TESTS = Path(__file__).resolve().parents[1]
Place = tuple[int, int]


class Oracle:
    """Produces records and knows what becomes of them."""

    def __init__(self, topic: TypedTopic, seed: int) -> None:
        self.topic = topic
        self.random = random.Random(seed)
        self.good: set[Place] = set()
        self.bad: set[Place] = set()
        self.latest: dict[bytes, int] = {}

    def produce(self) -> None:
        """A few records of each partition: values, tombstones, and some that do not fit."""
        for partition in range(PARTITIONS):
            base = self.topic.log.next.get(partition, 0)
            count = self.random.randrange(1, 60)
            rows = [self._row(partition, base + at) for at in range(count)]
            self.topic.produce_pairs(partition, *rows)
        self.topic.tier()

    def _row(self, partition: int, offset: int) -> tuple[bytes, object]:
        key = b"%d-%d" % (partition, self.random.randrange(KEYS))
        kind = self.random.random()
        if kind < 0.05:
            self.bad.add((partition, offset))
            return key, b"{bad"
        self.good.add((partition, offset))
        if kind < 0.15:
            self.latest.pop(key, None)
            return key, None
        self.latest[key] = self.random.randrange(1_000_000)
        return key, {"n": self.latest[key]}


def follower(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "integration.typed_process", str(folder), json.dumps(CONFIGS)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def places(topic: TypedTopic, kind: Kind) -> Counter[Place]:
    rows = DeltaTable(derived(topic.location, kind).place.uri).to_pyarrow_table()
    columns = (rows.column(name).to_pylist() for name in ("partition", "offset"))
    return Counter(zip(*columns, strict=True))


def test_racing_followers_under_kills_are_exact(tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, PARTITIONS)
    oracle = Oracle(topic, seed=1)
    oracle.produce()
    followers = [follower(tmp_path) for _ in range(FOLLOWERS)]
    ends, kills = time.monotonic() + SECONDS, 0
    try:
        while time.monotonic() < ends:
            oracle.produce()
            time.sleep(oracle.random.uniform(0.2, 1.0))
            if oracle.random.random() < 0.3:
                victim = oracle.random.randrange(FOLLOWERS)
                followers[victim].kill()
                followers[victim].wait()
                followers[victim] = follower(tmp_path)
                kills += 1
            if oracle.random.random() < 0.05:
                optimize(derived(topic.location, Kind.TYPED).place.uri)
    finally:
        for process in followers:
            process.kill()
            process.wait()
    settle(topic)
    assert kills > 0
    assert places(topic, Kind.TYPED) == Counter(oracle.good)
    assert places(topic, Kind.QUARANTINE) == Counter(oracle.bad)
    rows = DeltaTable(derived(topic.location, Kind.LATEST).place.uri).to_pyarrow_table().to_pylist()
    assert sorted((r["key"], r["n"]) for r in rows) == sorted(oracle.latest.items())


def optimize(uri: str) -> None:
    """A user's OPTIMIZE, which loses against a commit that comes first, or runs before any."""
    try:
        DeltaTable(uri).optimize.compact()
    except DeltaError:
        return


def settle(topic: TypedTopic) -> None:
    """Turns until all three tables have everything."""
    while True:
        turn = follow_topic(topic.location, CONFIGS, WithoutRegistry(), SystemClock())
        if turn.is_caught_up and turn.latest is not None and not turn.latest.behind:
            return
        time.sleep(0.05)
