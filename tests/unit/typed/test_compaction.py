"""Compaction of typed tables: the same rows in fewer files, sorted by the topic's columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headwater_tier.typed.compaction import FILES_MIN, compact_derived, due
from headwater_tier.typed.derived_table import DerivedFile, DerivedTable
from headwater_tier.typed.names import Kind, derived
from typed_topic import CLOCK, TypedTopic

FEW = 4


def followed(folder: Path, files: int) -> TypedTopic:
    """A topic whose table was sent so many files, each of a commit."""
    topic = TypedTopic(folder)
    topic.configs["headwater.typed.cluster"] = "n"
    for n in range(files):
        topic.produce(n % 2, {"n": -n}, {"n": n})
        topic.tier()
        topic.follow()
    return topic


def numbers_of_the_only_file(topic: TypedTopic) -> list[int]:
    (path,) = DeltaTable(derived(topic.location, Kind.TYPED).place.uri).file_uris()
    found: list[int] = pq.read_table(path).column("n").to_pylist()
    return found


def test_small_files_become_one_that_is_sorted(tmp_path: Path) -> None:
    topic = followed(tmp_path, FEW)
    table = DerivedTable(derived(topic.location, Kind.TYPED))
    clock, entropy = CLOCK, topic.entropy
    replaced = compact_derived(table, ("n",), clock=clock, entropy=entropy, files_min=FEW)
    assert replaced == FEW
    assert numbers_of_the_only_file(topic) == sorted([*range(FEW), *(-n for n in range(FEW))])


@pytest.mark.long
def test_who_follows_a_topic_compacts_its_table_in_time(tmp_path: Path) -> None:
    topic = followed(tmp_path, FILES_MIN)
    wanted = sorted([*range(FILES_MIN), *(-n for n in range(FILES_MIN))])
    assert numbers_of_the_only_file(topic) == wanted
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
