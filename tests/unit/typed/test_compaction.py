"""Compaction of typed tables: the same rows in fewer files, sorted by the topic's columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from headwater_tier.typed.compaction import FILES_MIN, due
from headwater_tier.typed.derived_table import DerivedFile
from headwater_tier.typed.names import Kind, derived
from typed_topic import TypedTopic


def test_small_files_become_one_that_is_sorted(tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path)
    topic.configs["headwater.typed.cluster"] = "n"
    for n in range(FILES_MIN):
        topic.produce(n % 2, {"n": -n}, {"n": n})
        topic.tier()
        topic.follow()
    table = DeltaTable(derived(topic.location, Kind.TYPED).place.uri)
    (path,) = table.file_uris()
    found = pq.read_table(path).column("n").to_pylist()
    assert found == sorted([*range(FILES_MIN), *(-n for n in range(FILES_MIN))])
    topic.produce(0, {"n": 1000})
    topic.tier()
    assert topic.follow().rows == 1


def small(number: int, size_bytes: int = 1) -> DerivedFile:
    return DerivedFile(f"{number}", size_bytes, 1, 0, 0, number, number)


def test_a_rewrite_waits_for_enough_files_or_bytes() -> None:
    assert due([small(n) for n in range(FILES_MIN - 1)]) == ()
    assert len(due([small(n) for n in range(FILES_MIN)])) == FILES_MIN
    assert len(due([small(n, 30 << 20) for n in range(5)])) == 4
    assert due([small(n, 64 << 20) for n in range(FILES_MIN)]) == ()
