"""A table's keys go where `send` puts them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.core.partitioning import KeyPartitioner
from headwater.client.key_partitions import SHORT_KEY_BYTES, key_partitions

KEYS = st.binary(max_size=20) | st.integers(SHORT_KEY_BYTES - 4, SHORT_KEY_BYTES + 4).map(bytes)


@given(st.lists(st.none() | KEYS), st.integers(0, 3))
def test_keys_of_a_table_have_the_partitions_of_sent_ones(
    keys: list[bytes | None], skipped: int
) -> None:
    column = pa.array([b"before"] * skipped + keys, pa.binary()).slice(skipped)
    by_key = KeyPartitioner()
    expected = [5 if key is None else by_key.partition(key, 7) for key in keys]
    assert key_partitions(column, 7, 5).tolist() == expected
