"""The cost of loading committed offsets at a start and a failover: batches of one record each.

Usage: python bench/bench_load.py [COMMITS]. Prints microseconds a commit: read by a coordinator, as
keys and values (what it does) and as whole records (what it did), by turns; scanned at the start of
a broker that was killed. The best of three of each.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headwater.records.batch import iter_headers
from headwater.records.builder import BatchBuilder
from headwater.records.pairs import LatestRecords, Rows
from headwater.records.record import check_batch, decode_batch
from headwater.system_files import SystemFiles
from headwater_broker.coordinator.group.records import OffsetCommitValue, offset_record
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_loader import LoadRequest, LogLoader
from headwater_broker.log.log_segment import LOG_SUFFIX, file_name

PARTITIONS = 12
ROUNDS = 3
START_MS = 1_700_000_000_000


def by_pairs(log: bytes, latest: Rows) -> None:
    """Keys and values alone."""
    found = LatestRecords()
    found.add(log)
    latest.update(found.rows)


def by_records(log: bytes, latest: Rows) -> None:
    """Every record of every batch, whole."""
    view = memoryview(log)
    for at, header in iter_headers(view):
        check_batch(view, at, header)
        for record in decode_batch(view, at, header):
            if record.key is not None:
                latest.pop(record.key, None)
                latest[record.key] = (record.offset, record.value)


def timed(read: Callable[[bytes, Rows], object], log: bytes) -> tuple[float, Rows]:
    """Seconds, and what was read."""
    latest: Rows = {}
    start = time.perf_counter()
    read(log, latest)
    return time.perf_counter() - start, latest


def scanned(log: bytes) -> float:
    """Seconds that opening the log takes after a kill."""
    folder = Path(tempfile.mkdtemp(prefix="bench-load-"))
    (folder / file_name(0, LOG_SUFFIX)).write_bytes(log)
    config = LogConfig.from_overrides({})
    request = LoadRequest(str(folder), config, 0, 0, clean_stop=False, now_ms=START_MS)
    start = time.perf_counter()
    LogLoader(SystemFiles(), request).load()
    seconds = time.perf_counter() - start
    shutil.rmtree(folder)
    return seconds


def main() -> None:
    commits = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    log = bytearray()
    for number in range(commits):
        place = OffsetCommitValue(
            offset=number, leader_epoch=3, metadata="", commit_timestamp=START_MS + number
        )
        record = offset_record("reports", "orders", number % PARTITIONS, place)
        builder = BatchBuilder()
        builder.append(place.commit_timestamp, record.key, record.value)
        log += builder.build(base_offset=number, leader_epoch=0)
    whole = bytes(log)
    pairs, records = [], []
    for _ in range(ROUNDS):
        seconds, found = timed(by_pairs, whole)
        pairs.append(seconds / commits * 1e6)
        seconds, wanted = timed(by_records, whole)
        records.append(seconds / commits * 1e6)
        if list(found.items()) != list(wanted.items()):
            raise SystemExit("the two readings differ")
    print(f"{commits} commits: {min(pairs):.2f} us each as keys and values, ", end="")
    print(f"{min(records):.2f} us as whole records, {min(records) / min(pairs):.1f}x")
    scan = min(scanned(whole) for _ in range(ROUNDS)) / commits * 1e6
    print(f"scanned after a kill: {scan:.2f} us each")


if __name__ == "__main__":
    main()
