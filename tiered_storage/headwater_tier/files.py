"""Data files: sorted Parquet whose row groups never span partitions, and their check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_tier.plan import FileFacts, TableLocation, TierRange


class Fetched(NamedTuple):
    """One committed read of a broker: whole record batches, and Fetch's aborted transactions."""

    records: memoryview | bytes
    aborted: Sequence[tuple[int, int]] = ()
    """(producer_id, first_offset) as the Fetch response lists them."""


Fetch = Callable[[int, int], Fetched]
"""(partition, offset) -> batches from that offset on, read-committed. Blocking. Must make progress:
batches that cover `offset`, as long as `offset` is below the planned end."""


def tier_range(
    fetch: Fetch,
    ranges: Sequence[TierRange],
    location: TableLocation,
    *,
    clock: Clock,
    entropy: Entropy,
) -> FileFacts | None:
    """Fetch these ranges, decode, write one L0 file of them into the table's folder; its facts.

    None when the ranges hold no rows (control records only). Memory stays flat: rows leave by row
    groups. The file is durable when this returns. Runs in a Spark task or anywhere.
    """
    raise NotImplementedError
