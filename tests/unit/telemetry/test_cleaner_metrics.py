"""Compaction in the metrics (B1-607): the counters of a cleaner pass."""

from __future__ import annotations

import asyncio

from headwater_broker.log.cleaner import CleanerMeter
from headwater_broker.telemetry.replica_metrics import cleaner_metrics
from unit.log.compacting import cleaner_of, compacted_log, fill
from unit.log.harness import Box
from unit.telemetry.test_metrics import values


def test_a_pass_of_the_cleaner_is_counted() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 24, 3)
    cleaner = cleaner_of(box)
    before = values(cleaner_metrics(cleaner.meter))
    assert set(before.values()) == {0}
    size = log.size_bytes
    asyncio.run(cleaner.run())
    found = {name[len("headwater_log_cleaner_") :]: v for (name, _), v in
             values(cleaner_metrics(cleaner.meter)).items()}  # fmt: skip
    assert found["runs_total"] == 1
    assert found["max_dirty_percent"] == 0, "nothing is dirty after it"
    assert found["records_dropped_total"] > 20
    assert found["bytes_read_total"] > found["bytes_written_total"] > 0
    assert found["bytes_read_total"] - found["bytes_written_total"] >= size - log.size_bytes
    assert found["last_run_timestamp_seconds"] == box.clock.now_ms() / 1000
    assert found["failures_total"] == found["uncleanable_partitions"] == 0


def test_the_dirtiest_log_and_those_that_cannot_be_compacted_are_told() -> None:
    meter = CleanerMeter(max_dirty_ratio=0.25, uncleanable_partitions=2, uncleanable_bytes=3000)
    found = values(cleaner_metrics(meter))
    assert found["headwater_log_cleaner_max_dirty_percent", ()] == 25
    assert found["headwater_log_cleaner_uncleanable_partitions", ()] == 2
    assert found["headwater_log_cleaner_uncleanable_bytes", ()] == 3000
