"""Tiering beside a broker: freshness, many trickling topics, an idle service, old offsets, tables.

`make bench-tiering ARGS="--only cold"`. Freshness: 20,000 records a second; the time from a
record's timestamp to the moment when its commit is in the log of the table, log or typed. Trickle:
a record every 2 seconds in each of many topics, all of which are new to the service when it starts:
the time to the first commit, and then the mean delay that the service reports for each topic.
First: the first typed commit of a new installation, whose kernels are not compiled yet.
Idle: resident memory and processor time of a service whose topics have no new records. The other
parts are `tiering_cold`, `tiering_tables`, `tiering_union`. Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from peers import HeadwaterPeer, bench_folder
from rich.console import Console
from rich.table import Table
from tiering_cold import bench_cold
from tiering_tables import bench_day, bench_opening
from tiering_union import bench_union

from headwater import Admin, Producer
from headwater.client.values import NewTopic
from headwater_tier.table_location import locate
from headwater_tier.typed.names import Kind, derived

RATE = 20_000
VALUE_BYTES = 100
FRESH_P95_S = {"log": 5.0, "typed": 10.0}
IDLE_MB = 250.0
IDLE_CPU = 1.0
"""Percent of one core."""
FIRST_FOR_S = 20.0
FIRST_COMMIT_S = 20.0
"""With the start of the process, its libraries, and the group's first round."""
ACHIEVED_P95_S = 25.0
TRICKLE_S = 2.0
START_S = 15.0
IDLE_FOR_S = 20.0
TIERED = {"remote.storage.enable": "true"}


@contextmanager
def service(
    headwater: HeadwaterPeer, log: Path, start_s: float = START_S, kernels: Path | None = None
) -> Iterator[psutil.Process]:
    """`headwater tier serve`, with its topics found and its memory in use. `kernels`: the folder
    that has numba's compiled kernels, in place of the user's."""
    command = [sys.executable, "-P", "-m", "headwater", "tier", "serve"]
    with open(log, "ab") as out:
        process = subprocess.Popen(
            [*command, "--bootstrap-server", headwater.bootstrap],
            stderr=out,
            stdout=out,
            env=os.environ | ({} if kernels is None else {"NUMBA_CACHE_DIR": str(kernels)}),
        )
    try:
        time.sleep(start_s)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def create(
    headwater: HeadwaterPeer,
    names: list[str],
    partitions: int = 1,
    configs: dict[str, str] | None = None,
) -> None:
    """Tiered topics, a hundred at a time."""
    rows = TIERED | (configs or {})
    with Admin(headwater.bootstrap) as admin:
        for at in range(0, len(names), 100):
            some = [NewTopic(n, partitions, 1, configs=rows) for n in names[at : at + 100]]
            admin.create_topics(some)


def random_values(count: int) -> pa.Array:
    """Values of VALUE_BYTES."""
    data = pa.py_buffer(np.random.default_rng(count).bytes(count * VALUE_BYTES))
    offsets = pa.array(np.arange(0, (count + 1) * VALUE_BYTES, VALUE_BYTES, np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], data])


def json_values(count: int) -> pa.Array:
    """Objects of six fields, about 100 bytes."""
    ids = pa.array(np.arange(count)).cast(pa.string())
    amounts = pa.array(np.random.default_rng(count).random(count).round(6)).cast(pa.string())
    parts = ['{"id":', ids, ',"user":"user-', ids, '","amount":', amounts]
    parts += [',"ok":true,"city":"town-', ids, '","count":', ids, "}", ""]
    return pc.binary_join_element_wise(*parts).cast(pa.binary())


def produce_evenly(
    headwater: HeadwaterPeer, topic: str, seconds: float, values: Callable[[int], pa.Array]
) -> int:
    """RATE records a second; how many."""
    sent, start = 0, time.monotonic()
    with Producer(headwater.bootstrap) as producer:
        while (passed := time.monotonic() - start) < seconds:
            count = int(passed * RATE) - sent
            if count < RATE // 100:
                time.sleep(0.005)
                continue
            producer.send_table(topic, pa.table({"value": values(count)}), value="value")
            sent += count
        producer.flush(60)
    return sent


def ages(table: Path) -> np.ndarray:
    """Seconds from each row's timestamp to the time when its commit was in the log."""
    found = []
    for commit in sorted(table.glob("_delta_log/*.json")):
        visible = commit.stat().st_mtime
        for line in commit.read_text().splitlines():
            add = json.loads(line).get("add")
            if add and add["dataChange"]:
                times = pq.read_table(table / add["path"], columns=["timestamp"])["timestamp"]
                found.append(visible - times.cast(pa.int64()).to_numpy() / 1e6)
    return np.concatenate(found)


def bench_freshness(headwater: HeadwaterPeer, folder: Path, seconds: float) -> list[dict[str, Any]]:
    """p95 of the age at which a record is in its log table, and in its typed table, by a service
    that has decoded JSON before: its kernels are compiled once, which takes ten seconds."""
    create(headwater, ["first", "fresh"], 4, {"headwater.value.format": "json"})
    with service(headwater, folder / "service.log") as process:
        produce_evenly(headwater, "first", 1.0, json_values)
        time.sleep(START_S)
        sent = produce_evenly(headwater, "fresh", seconds, json_values)
        time.sleep(3 * FRESH_P95_S["log"])
        cpu = sum(process.cpu_times()[:2])
    with Admin(headwater.bootstrap) as admin:
        log = locate(admin, "fresh")
    tables = {"log": log.uri, "typed": derived(log, Kind.TYPED).place.uri}
    rows = []
    for name, uri in tables.items():
        found = ages(Path(uri.removeprefix("file://")))
        if len(found) != sent:
            raise RuntimeError(f"the {name} table has {len(found)} rows, {sent} were sent")
        p50, p95 = np.percentile(found, [50, 95])
        more = f"p50 {p50:.2f}, max {found.max():.2f}, {cpu:.1f} s CPU"
        work = f"freshness of the {name} table at {RATE:,} rec/s, p95 s"
        row = {"work": work, "found": round(float(p95), 2), "bar": FRESH_P95_S[name], "more": more}
        rows.append(row)
    return rows


def bench_first(headwater: HeadwaterPeer, folder: Path) -> list[dict[str, Any]]:
    """The first typed commit of a new installation: nothing is compiled yet."""
    kernels = folder / "kernels"
    with service(headwater, folder / "service.log", 0.0, kernels):
        create(headwater, ["new"], 4, {"headwater.value.format": "json"})
        started = time.time()
        produce_evenly(headwater, "new", FIRST_FOR_S, json_values)
        time.sleep(FRESH_P95_S["typed"])
    with Admin(headwater.bootstrap) as admin:
        log = locate(admin, "new")
    found = {}
    for name, uri in {"log": log.uri, "typed": derived(log, Kind.TYPED).place.uri}.items():
        commits = Path(uri.removeprefix("file://")).glob("_delta_log/*.json")
        found[name] = min(c.stat().st_mtime for c in commits if '"add"' in c.read_text()) - started
    row = {
        "work": "new installation: the topic's first record to its first typed commit, s",
        "found": round(found["typed"], 1),
        "bar": FRESH_P95_S["typed"],
        "more": f"to the log table {found['log']:.1f}, at {RATE:,} rec/s",
    }
    return [row]


def bench_idle(headwater: HeadwaterPeer, folder: Path) -> list[dict[str, Any]]:
    """Memory and processor time without new records."""
    with service(headwater, folder / "service.log") as process:
        time.sleep(IDLE_FOR_S)
        before = sum(process.cpu_times()[:2])
        time.sleep(IDLE_FOR_S)
        cpu = (sum(process.cpu_times()[:2]) - before) / IDLE_FOR_S * 100
        memory = process.memory_info().rss / (1 << 20)
    return [
        {"work": "idle service, MB", "found": round(memory), "bar": IDLE_MB, "more": ""},
        {"work": "idle service, % of a core", "found": round(cpu, 2), "bar": IDLE_CPU, "more": ""},
    ]


def bench_trickle(
    headwater: HeadwaterPeer, folder: Path, count: int, seconds: float
) -> list[dict[str, Any]]:
    """The first commit, the delays that the service reports over all topics, and what a commit
    costs. The service starts when every topic has records."""
    names = [f"trickle-{i:04d}" for i in range(count)]
    create(headwater, names)
    log = folder / "service.log"
    with Producer(headwater.bootstrap) as producer:
        _send_each(producer, names)
        started = time.time()
        with service(headwater, log, 0.0) as process:
            end = time.monotonic() + 2 * seconds
            at_half: tuple[float, int] | None = None
            while time.monotonic() < end:
                began = time.monotonic()
                _send_each(producer, names)
                if at_half is None and time.monotonic() > end - seconds:
                    known = sum(map(len, _commits(headwater, names).values()))
                    at_half = sum(process.cpu_times()[:2]), known
                time.sleep(max(0.0, began + TRICKLE_S - time.monotonic()))
            assert at_half is not None
            cpu = sum(process.cpu_times()[:2]) - at_half[0]
            found = _commits(headwater, names)
            command = [sys.executable, "-P", "-m", "headwater", "tier", "status", "--json"]
            command += ["--bootstrap-server", headwater.bootstrap]
            text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    commits = sum(map(len, found.values())) - at_half[1]
    firsts = sorted(times[0] - started for times in found.values() if times)
    rows = [r for r in json.loads(text)["topics"] if r["topic"].startswith("trickle-")]
    delays = sorted(r["achieved_ms"] / 1000 for r in rows if r.get("achieved_ms"))
    if len(delays) != count:
        raise RuntimeError(f"{count - len(delays)} of {count} topics were not tiered")
    p50, p95 = np.percentile(delays, [50, 95])
    work = f"{count:,} trickling topics: "
    shown = f"{commits / seconds:.0f} commits/s, {cpu / seconds:.0%} of a core"
    return [
        {
            "work": work + "start of the service to the first commit, s",
            "found": round(firsts[0], 1),
            "bar": FIRST_COMMIT_S,
            "more": f"the last topic's first commit after {firsts[-1]:.0f} s",
        },
        {
            "work": work + "achieved interval, p95 s",
            "found": round(float(p95), 1),
            "bar": ACHIEVED_P95_S,
            "more": f"p50 {p50:.1f}, max {delays[-1]:.1f}; {shown}",
        },
        {
            "work": work + "longest achieved interval / median",
            "found": round(delays[-1] / statistics.median(delays), 2),
            "bar": 2.0,
            "more": f"{1000 * cpu / max(1, commits):.1f} ms of the service's CPU a commit",
        },
    ]


def _send_each(producer: Producer, names: list[str]) -> None:
    for name in names:
        producer.send(name, b"a record")
    producer.flush(60)


def _commits(headwater: HeadwaterPeer, names: list[str]) -> dict[str, list[float]]:
    """Topic -> when each commit of tiering came into the log of its table, oldest first."""
    with Admin(headwater.bootstrap) as admin:
        base = Path(locate(admin, names[0]).uri.removeprefix("file://")).parent
    size = len(names[0])
    found = {}
    for log in base.glob("trickle-*/_delta_log"):
        commits = sorted(log.glob("*.json"))[1:]  # the first one makes the table
        found[log.parent.name[:size]] = [commit.stat().st_mtime for commit in commits]
    return found


def main() -> int:
    """Run all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_500_000, help="of the topic read cold")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=["fresh", "first", "idle", "trickle", "cold", "open", "day", "union"],
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = bench_folder("tiering", on_disk=True)
    folder.mkdir(parents=True, exist_ok=True)
    settings = ("log.retention.check.interval.ms=200",)
    headwater = HeadwaterPeer(folder / "headwater", settings=settings).start()
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "fresh": lambda: bench_freshness(headwater, folder, options.seconds),
        "first": lambda: bench_first(headwater, folder),
        "idle": lambda: bench_idle(headwater, folder),
        "trickle": lambda: bench_trickle(headwater, folder, options.topics, options.seconds),
        "cold": lambda: bench_cold(headwater, options.rows),
        "open": lambda: [bench_opening(folder)],
        "day": lambda: [bench_day(folder)],
        "union": lambda: [bench_union(headwater)],
    }
    chosen = options.only or list(parts)
    try:
        rows = [row for name in chosen for row in parts[name]()]
    finally:
        headwater.stop()
    holds = [
        row["found"] >= row["bar"] if row.get("at_least") else row["found"] <= row["bar"]
        for row in rows
    ]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        table = Table("work", "found", "bar", "", "more", title="The tiering service")
        for row, held in zip(rows, holds, strict=True):
            verdict = "holds" if held else "MISSED"
            table.add_row(row["work"], str(row["found"]), f"{row['bar']:g}", verdict, row["more"])
        Console().print(table)
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
