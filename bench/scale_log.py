"""The cost of a long log: 50 GB beside 1 GB, on one broker, turn by turn.

The history is made, not sent: while the broker is down, closed segments are laid into both
partitions' folders. Every 512 KiB of a segment hold one large batch, of which only the header was
written (the rest is a hole of the file), and one real batch of 4 KB. Both have their rows in
`.index`, times are in `.timeindex`. So the log's structure is whole, and what fetches return (the
small batches) are real records; only the bulk between them takes no space.
"""

from __future__ import annotations

import os
import random
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path

from scale_cluster import Reading, cluster

from headwater.client.blocking.record_client import RecordClient
from headwater.records.batch import AT_BATCH_LENGTH, HEADER_BYTES, LOG_OVERHEAD_BYTES
from headwater.records.builder import build_batch
from integration.cluster import LocalCluster

SHORT, LONG = "short", "long"
SEGMENTS = {SHORT: 1, LONG: 50}
SEGMENT_BYTES = 1 << 30
PAIR_BYTES = 512 << 10
PAIRS = SEGMENT_BYTES // PAIR_BYTES - 1
SMALL_BYTES = 4096
BATCHES_PER_SEGMENT = 2 * PAIRS
FIRST_MS = 1_700_000_000_000

OPERATIONS = 24_000
"""A 99th percentile of fewer is the box's hiccups: 240 values lie beyond it."""
WARM_UP = 500
BAR_PERCENT = 10.0
SEED = 7


def measure() -> list[Reading]:
    """Appends and fetches of one small batch, each pair back to back; ratios of p50 and p99."""
    with cluster("log", 1, log_retention_ms="-1") as single:
        for topic in SEGMENTS:
            single.create_topic(topic, 1)
        single.stop_broker(0)
        for topic, count in SEGMENTS.items():
            lay(single, topic, count)
        single.restart(0)
        with RecordClient(single.bootstrap) as client:
            ends = {topic: client.list_offsets({(topic, 0): -1})[topic, 0] for topic in SEGMENTS}
            for topic, count in SEGMENTS.items():
                if ends[topic].offset != count * BATCHES_PER_SEGMENT:
                    raise RuntimeError(f"{topic} ends at {ends[topic]}")
            first = first_touch_ms(client)
            batch = small_batch()
            rows = compare("append", lambda topic: client.produce_batch(topic, 0, batch, 1))
            rows += compare("fetch at a random offset", random_fetch(client))
    beside = "its index is read from the file"
    return [*rows, Reading("first fetch from a closed segment, p50", first, "ms", None, beside)]


def lay(single: LocalCluster, topic: str, segments: int) -> None:
    """Put closed segments where the stopped broker's empty one is."""
    folder = single.spec.slot(0).folder / f"{topic}-0"
    for old in folder.glob("0*.*"):
        old.unlink()
    small = bytearray(small_batch())
    for segment in range(segments):
        lay_segment(folder, segment * BATCHES_PER_SEGMENT, small)


def lay_segment(folder: Path, base: int, small: bytearray) -> None:
    """One segment with its indexes."""
    hole = bytearray(small[:HEADER_BYTES])
    large_bytes = PAIR_BYTES - len(small)
    struct.pack_into(">i", hole, AT_BATCH_LENGTH, large_bytes - LOG_OVERHEAD_BYTES)
    index = bytearray()
    stem = folder / f"{base:020d}"
    with open(f"{stem}.log", "wb") as log:
        for pair in range(PAIRS):
            for row, batch, position in (
                (2 * pair, hole, pair * PAIR_BYTES),
                (2 * pair + 1, small, pair * PAIR_BYTES + large_bytes),
            ):
                struct.pack_into(">q", batch, 0, base + row)
                os.pwrite(log.fileno(), batch, position)
                index += struct.pack(">ii", row, position)
    Path(f"{stem}.index").write_bytes(index)
    Path(f"{stem}.timeindex").write_bytes(struct.pack(">qi", FIRST_MS, 0))


def small_batch() -> bytes:
    """A batch of one record, as large as a page."""
    empty = len(build_batch([(FIRST_MS, None, bytes(SMALL_BYTES - 256), ())])) - (SMALL_BYTES - 256)
    return build_batch([(FIRST_MS, None, os.urandom(SMALL_BYTES - empty), ())])


def first_touch_ms(client: RecordClient) -> float:
    """Each closed segment of the long log for the first time."""
    times = [
        timed_ms(lambda at=base: client.fetch_batches(LONG, 0, at + 1, SMALL_BYTES))
        for base in range(0, (SEGMENTS[LONG] - 1) * BATCHES_PER_SEGMENT, BATCHES_PER_SEGMENT)
    ]
    return statistics.median(times)


def random_fetch(client: RecordClient) -> Callable[[str], object]:
    """Fetches of one small batch anywhere in the made history."""
    pick = random.Random(SEED)

    def run(topic: str) -> None:
        offset = 2 * pick.randrange(SEGMENTS[topic] * PAIRS) + 1
        found = client.fetch_batches(topic, 0, offset, SMALL_BYTES)
        if found.next_offset != offset + 1:
            raise RuntimeError(f"{topic} at {offset}: next is {found.next_offset}")

    return run


def compare(what: str, run: Callable[[str], object]) -> list[Reading]:
    """By turns on both logs; what the long one costs over the short one."""
    times: dict[str, list[float]] = {topic: [] for topic in SEGMENTS}
    for turn in range(WARM_UP + OPERATIONS):
        for topic in (SHORT, LONG) if turn % 2 else (LONG, SHORT):
            taken = timed_ms(lambda at=topic: run(at))
            if turn >= WARM_UP:
                times[topic].append(taken)
    rows = []
    for name, percent in (("p50", 50), ("p99", 99)):
        short, long = (percentile(times[topic], percent) for topic in (SHORT, LONG))
        beside = f"{short:.3f} ms in 1 GB, {long:.3f} ms in 50 GB"
        cost = (long / short - 1) * 100
        rows.append(Reading(f"{what}, {name}: 50 GB over 1 GB", cost, "%", BAR_PERCENT, beside))
    return rows


def percentile(values: list[float], percent: int) -> float:
    """The value that `percent` of 100 do not exceed."""
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def timed_ms(run: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3
