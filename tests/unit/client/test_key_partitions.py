"""A table's keys go where `send` puts them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.core.partitioning import KeyPartitioner
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.key_partitions import SHORT_KEY_BYTES, key_partitions
from headwater.client.table import TablePlan, table_batches

KEYS = st.binary(max_size=20) | st.integers(SHORT_KEY_BYTES - 4, SHORT_KEY_BYTES + 4).map(bytes)


@given(st.lists(st.none() | KEYS), st.integers(0, 3))
def test_keys_of_a_table_have_the_partitions_of_sent_ones(
    keys: list[bytes | None], skipped: int
) -> None:
    column = pa.array([b"before"] * skipped + keys, pa.binary()).slice(skipped)
    by_key = KeyPartitioner()
    expected = [5 if key is None else by_key.partition(key, 7) for key in keys]
    assert key_partitions(column, 7, 5).tolist() == expected


def rows_by_partition(table: pa.Table, partitions: int, **options: Any) -> dict[int, int]:
    """How many rows of a table go to each partition."""
    plan = {"key": "k", "value": "v", "headers": None, "timestamp": None, "partition": None}
    chosen = TablePlan(**{**plan, "partition": options.pop("partition", None)})
    found: dict[int, int] = {}
    for partition, _, count in table_batches(
        table,
        chosen,
        partitions=partitions,
        now_ms=0,
        compression=None,
        batch_bytes_max=1 << 20,
        **options,
    ):
        found[partition] = found.get(partition, 0) + count
    return found


def test_a_table_goes_by_the_producers_partitioner() -> None:
    table = pa.table({"k": ["a", "bb", None, "cc"], "v": ["1", "2", "3", "4"]})

    def by_length(key: bytes | None, partitions: int) -> int:
        return partitions - 1 if key is None else len(key)

    assert rows_by_partition(table, 6, partitioner=by_length) == {1: 1, 2: 2, 5: 1}
    assert rows_by_partition(table, 3, partitioner="round_robin") == {0: 2, 1: 1, 2: 1}
    same = pa.table({"k": ["a"] * 4, "v": ["1"] * 4})
    assert rows_by_partition(same, 4, partitioner="sticky") == {0: 1, 1: 1, 2: 1, 3: 1}
    beyond = pytest.raises(UnknownTopicOrPartitionError, match="partition 5: the topic has")
    with beyond:
        rows_by_partition(table, 5, partitioner=lambda _key, partitions: partitions)


def test_rows_without_a_partition_go_by_their_key() -> None:
    table = pa.table(
        {"k": ["a", "a", "b"], "v": ["1", "2", "3"], "p": pa.array([6, None, 6], pa.int32())}
    )
    by_key = KeyPartitioner().partition(b"a", 7)
    assert by_key != 6
    assert rows_by_partition(table, 7, partition="p") == {6: 2, by_key: 1}
