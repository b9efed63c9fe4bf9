"""The start of a broker after a clean stop: from its process to a `/health` that says ready."""

from __future__ import annotations

import compileall
import statistics
import time
import urllib.error
import urllib.request
from pathlib import Path

from peers import CLOCK_TICKS, ROOT, cpu_seconds
from scale_cluster import Reading, cluster

from headwater.client.producer import Producer
from integration.cluster import LocalCluster

SOURCE_ROOTS = ("platform", "tiered_storage", "broker_service")
PARTITIONS = 100
ROUNDS = 5
BAR_S = 1.0
READY_POLL_S = 0.005
READY_TIMEOUT_S = 60.0
OFFSETS_PARTITIONS = 8


def measure() -> list[Reading]:
    """The median of some restarts of one broker alone, each partition with a record.

    With bytecode beside the sources, as `make setup` leaves it: they may have been edited since.
    """
    for root in SOURCE_ROOTS:
        compileall.compile_dir(ROOT / root, quiet=1)
    with cluster("start", 1) as single:
        topic = single.create_topic("start", PARTITIONS - OFFSETS_PARTITIONS)
        with Producer(single.bootstrap) as producer:
            for partition in range(PARTITIONS - OFFSETS_PARTITIONS):
                producer.send(topic, b"x", partition=partition)
            producer.flush()
        times, cpu = [], []
        for _ in range(ROUNDS):
            times.append(restart_s(single))
            cpu.append(cpu_seconds([single.pid(0)]))
    beside = f"best {min(times):.2f}, worst {max(times):.2f}; CPU {statistics.median(cpu):.2f} s"
    return [Reading("clean restart until ready", statistics.median(times), "s", BAR_S, beside)]


def restart_s(single: LocalCluster, broker_id: int = 0, *, kill: bool = False) -> float:
    """Stop it cleanly, or kill it, and start it again; the seconds from its birth to the first 200.

    Its broker may hold it back for a while before: that is not the broker's time.
    """
    if kill:
        single.kill_broker(broker_id)
    else:
        single.stop_broker(broker_id)
    broker = single.supervised(broker_id)
    url = f"http://127.0.0.1:{single.spec.slot(broker_id).status_port}/health"
    started = time.monotonic()
    broker.release()
    while not _is_ready(url):
        if time.monotonic() - started > READY_TIMEOUT_S:
            raise RuntimeError(f"broker {broker_id} is not ready after {READY_TIMEOUT_S:.0f} s")
        time.sleep(READY_POLL_S)
    ready_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    broker.wait_ready()
    return ready_at - born_at(single.pid(broker_id))


def born_at(pid: int) -> float:
    """When a process began, in seconds since the machine did."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / CLOCK_TICKS


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
