"""The spool keeps what is not safe yet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from city.spool import Spool

TABLE = pa.table({"key": ["a", "b"], "value": ["1", "2"]})


def test_a_chunk_is_on_disk_until_it_is_acknowledged(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    chunk = spool.put("vehicles", [0, 1], TABLE)
    assert chunk.table().equals(TABLE)
    assert spool.release(None) == 0
    chunk.ranges = {0: (0, 1), 2: (5, 6)}
    assert spool.release(None) == 1
    assert len(spool) == 0
    assert list((tmp_path / "s").iterdir()) == []


def test_a_mirrored_chunk_waits_until_the_mirror_has_passed_each_partition(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    first, second = (spool.put("vehicles", [n], TABLE) for n in range(2))
    first.ranges, second.ranges = {0: (0, 3), 1: (7, 9)}, {0: (3, 4)}
    assert spool.release({}) == 0
    assert spool.release({"vehicles": {0: 4, 1: 8}}) == 1
    assert list(spool) == [first]
    assert spool.release({"vehicles": {0: 4, 1: 9}}) == 1


def test_a_chunk_that_was_never_acknowledged_is_never_passed(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put("faces", [0], TABLE)
    assert spool.release({"faces": {0: 100}}) == 0
