"""The cost of an append as leader: one small batch, uncompressed, CreateTime, on a real file.

Usage: python bench/bench_append.py [RECORD_BYTES [FOLDER]]. Prints the whole append, the part of
it that is CRC and pwrite alone, and the difference: the price of validation, state and indexes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from uuid import UUID

from crc32c import crc32c

from headwater.records.builder import BatchBuilder
from headwater.system import SystemClock, SystemEntropy
from headwater.system_files import SystemFiles
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_manager import LogManager

ROUNDS = 5
APPENDS_MAX = 50_000
ROUND_BYTES_MAX = 128 << 20
"""More would measure how the kernel throttles writers."""


def main() -> None:
    record_bytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    parent = sys.argv[2] if len(sys.argv) > 2 else None
    folder = tempfile.mkdtemp(prefix="bench-append-", dir=parent)
    clock = SystemClock()
    manager = LogManager(
        SystemFiles(), [folder], broker_id=1, cluster_id="bench", clock=clock,
        entropy=SystemEntropy(), broker_properties={}, offload=lambda job: job(),
    )  # fmt: skip
    manager.load_all()
    config = LogConfig.from_overrides({})
    log = manager.get_or_create("bench", UUID(int=1), 0, config, is_new=True)
    now_ms = clock.now_ms()
    builder = BatchBuilder()
    builder.append(now_ms, None, b"x" * record_bytes)
    template = bytes(builder.build())
    view = memoryview(bytearray(template))
    head = template[:16]
    fd = os.open(folder + "/bare", os.O_RDWR | os.O_CREAT)
    append, best, bare, at = log.append_as_leader, float("inf"), float("inf"), 0
    count = min(APPENDS_MAX, ROUND_BYTES_MAX // len(template))
    try:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(count):
                view[:16] = head
                append(view, 0, now_ms)
            best = min(best, time.perf_counter() - start)
            start = time.perf_counter()
            for _ in range(count):  # fresh pages of the page cache too: they are half the cost
                view[:16] = head
                crc32c(view[21:])
                os.pwrite(fd, view, at)
                at += len(view)
            bare = min(bare, time.perf_counter() - start)
    finally:
        os.close(fd)
        shutil.rmtree(folder)
    best, bare = best / count * 1e6, bare / count * 1e6
    print(f"batch of {len(template)} bytes: append {best:.2f} us, ", end="")
    print(f"crc + pwrite alone {bare:.2f} us, rest {best - bare:.2f} us")


if __name__ == "__main__":
    main()
