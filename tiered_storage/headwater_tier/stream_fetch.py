"""The `Fetch` of tiering: committed batches of planned ranges, from the partitions' leaders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from headwater.client.blocking.fetch import NO_TOPIC_ID
from headwater.client.blocking.record_client import READ_COMMITTED, FetchedBatches, RecordClient
from headwater_tier.data_files import Fetched
from headwater_tier.offset_ranges import TierRange

FETCH_BYTES = 4 * 1024 * 1024


class StreamFetch:
    """`headwater_tier.data_files.Fetch` over one stream of fetches per range, one fetch ahead."""

    def __init__(
        self,
        client: RecordClient,
        topic: str,
        ranges: Sequence[TierRange],
        topic_id: UUID = NO_TOPIC_ID,
    ) -> None:
        """With a `topic_id`, a topic that was created again under the name is never fetched."""
        self._topic_id = topic_id
        self._client = client
        self._topic = topic
        self._ends = {r.partition: r.end_offset for r in ranges}
        self._stream: Iterator[FetchedBatches] = iter(())
        self._at: tuple[int, int] | None = None
        self.fetched_bytes = 0

    def __call__(self, partition: int, offset: int) -> Fetched:
        """Batches from `offset` on; the memory is valid until the next call."""
        if self._at != (partition, offset):
            self._stream = self._client.stream_batches(
                self._topic,
                partition,
                offset,
                self._ends[partition],
                max_bytes=FETCH_BYTES,
                isolation=READ_COMMITTED,
                topic_id=self._topic_id,
            )
        chunk = next(self._stream, None)
        if chunk is None:
            return Fetched(b"")
        self._at = (partition, chunk.next_offset)
        self.fetched_bytes += len(chunk.records)
        return Fetched(chunk.records, chunk.aborted)
