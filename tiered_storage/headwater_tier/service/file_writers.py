"""The threads that write data files: each fetches, decodes and writes its share of a turn.

Decoding, compression and I/O release the GIL, so that two threads use two cores. The files are not
durable yet: fsync happens beside the next turn, in the thread that commits.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from headwater.client.blocking.record_client import RecordClient
from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_tier.commit_fence import FileFacts
from headwater_tier.data_files import tier_range
from headwater_tier.offset_ranges import TierRange, task_ranges
from headwater_tier.stream_fetch import StreamFetch
from headwater_tier.table_names import TableLocation

WRITERS = 2
PART_BYTES_MIN = 8 << 20
"""Below this a second file costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Written:
    """The files of one turn, not durable yet, and the bytes that were fetched for them."""

    files: tuple[FileFacts, ...]
    fetched_bytes: int


class FileWriters:
    """A pool of writers, each with connections of its own."""

    def __init__(
        self,
        new_client: Callable[[], RecordClient],
        clock: Clock,
        entropy: Entropy,
        prepare: Callable[[], None] = lambda: None,
        writers: int = WRITERS,
    ) -> None:
        """`prepare` is called once, before the first write."""
        self._prepare = prepare
        self._is_prepared = False
        self._new_client = new_client
        self._clock = clock
        self._entropy = entropy
        self._writers = writers
        self._pool = ThreadPoolExecutor(writers, thread_name_prefix="tier-writer")
        self._clients: queue.SimpleQueue[RecordClient] = queue.SimpleQueue()

    def write(
        self, location: TableLocation, ranges: Sequence[TierRange], bytes_per_offset: float
    ) -> Written:
        """Write the ranges, as one file, or one per writer if each has PART_BYTES_MIN. Raises
        HeadwaterError, OSError."""
        if not self._is_prepared:
            self._prepare()
            self._is_prepared = True
        offsets_min = max(1, int(PART_BYTES_MIN / max(1.0, bytes_per_offset)))
        parts = task_ranges(ranges, self._writers, offsets_min)
        if len(parts) == 1:
            return self._part(location, parts[0])
        futures: list[Future[Written]] = [
            self._pool.submit(self._part, location, part) for part in parts
        ]
        done = [future.exception() for future in futures]
        for error in done:
            if error is not None:
                raise error
        found = [future.result() for future in futures]
        return Written(
            tuple(facts for part in found for facts in part.files),
            sum(part.fetched_bytes for part in found),
        )

    def _part(self, location: TableLocation, ranges: Sequence[TierRange]) -> Written:
        try:
            client = self._clients.get_nowait()
        except queue.Empty:
            client = self._new_client()
        fetch = StreamFetch(client, location.topic, ranges, location.topic_id)
        try:
            facts = tier_range(
                fetch, ranges, location, clock=self._clock, entropy=self._entropy, durable=False
            )
        except BaseException:
            client.close()  # a response may be outstanding
            raise
        self._clients.put(client)
        return Written(() if facts is None else (facts,), fetch.fetched_bytes)

    def close(self) -> None:
        """Wait for the running parts; close every connection."""
        self._pool.shutdown(wait=True)
        while not self._clients.empty():
            self._clients.get_nowait().close()
