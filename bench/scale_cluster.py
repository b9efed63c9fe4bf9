"""Shared by the benches of scale: a local cluster, and a figure with its bar."""

from __future__ import annotations

import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from peers import bench_folder, free_port_block

from headwater.client.admin.client import Admin
from integration.cluster import LocalCluster

POLL_S = 0.05


@dataclass(frozen=True)
class Reading:
    """One figure; without a bar it is only shown. Less is better."""

    what: str
    figure: float
    unit: str
    bar: float | None = None
    beside: str = ""

    @property
    def is_met(self) -> bool:
        """True when the bar holds, or there is none."""
        return self.bar is None or self.figure <= self.bar

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "met": self.is_met}


@contextmanager
def cluster(name: str, brokers: int, **properties: str) -> Iterator[LocalCluster]:
    """A cluster on fresh folders, gone afterwards; property names with _ for dots."""
    folder = bench_folder(f"scale-{name}")
    rows = {key.replace("_", "."): value for key, value in properties.items()}
    made = LocalCluster(folder, free_port_block(), brokers, rows)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def metric(made: LocalCluster, broker_id: int, name: str) -> int:
    """The sum over the rows of a metric, as a broker's status port tells it."""
    url = f"http://127.0.0.1:{made.spec.slot(broker_id).status_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    found = [line for line in lines if line.partition(" ")[0].partition("{")[0] == name]
    if not found:
        raise RuntimeError(f"broker {broker_id} tells no {name}")
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def wait_led(admin: Admin, wanted: int, *, but: int = -1, timeout_s: float = 120.0) -> float:
    """Wait until `wanted` partitions have a leader other than `but`; when that was seen."""
    end = time.monotonic() + timeout_s
    while True:
        rows = [p for t in admin.describe_topics().values() for p in t.partitions]
        now = time.monotonic()
        led = sum(p.leader not in (-1, but) for p in rows)
        if led >= wanted:
            return now
        if now > end:
            raise RuntimeError(f"{led} of {wanted} partitions are led after {timeout_s:.0f} s")
        time.sleep(POLL_S)
