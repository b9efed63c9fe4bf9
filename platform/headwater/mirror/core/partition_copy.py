"""One source partition on its way to the target: position, buffer, why it stopped. Pure.

It leaves out the records that the mirror in the other direction wrote (`cycle_detection`).
"""

from __future__ import annotations

from collections import deque

from headwater.client.values import TopicPartition
from headwater.mirror.core.batches import MERGED_BYTES, Piece, merged, pieces_of
from headwater.mirror.core.offset_translation import OffsetMap
from headwater.mirror.core.state import Position, SourceEnd, StateRecord, chunk_record
from headwater.mirror.core.state import position_record as stored_position


class PartitionCopy:
    """What a bucket knows of one of its partitions. A new one is made from the stored state when
    the bucket starts, and after each transaction that failed."""

    def __init__(
        self,
        tp: TopicPartition,
        position: Position,
        offset_map: OffsetMap,
        skipped: OffsetMap | None = None,
    ) -> None:
        """`skipped`: the map of the mirror in the other direction, whose target this source is."""
        self.tp = tp
        self.topic_id = position.source_topic_id
        self.target_topic_id = position.target_topic_id
        self.offset_map = offset_map
        self.stored = position.next_offset
        """The position in the target."""
        self.next_offset = position.next_offset
        """The position once the open transaction commits."""
        self.fetch_offset = position.next_offset
        self.fetch_epoch = position.leader_epoch
        """Leader epoch of the batch before `fetch_offset`."""
        self.buffered_bytes = 0
        self.in_flight = False
        self.not_before = 0.0
        self.trouble = ""
        """The last error that is retried."""
        self.stopped = ""
        """Why the partition is not mirrored any more, and the remedy."""
        self.end = SourceEnd(-1, -1)
        self._leader_epoch = position.leader_epoch
        self._timestamp = position.timestamp
        self._pieces: deque[Piece] = deque()
        self.skipped = skipped

    @property
    def has_news(self) -> bool:
        """True when the position has moved since it was stored."""
        return self.next_offset != self.stored or bool(self._pieces)

    @property
    def may_store(self) -> bool:
        """False for a partition that was stopped before its first position was stored: it is
        checked again when the bucket begins again."""
        return self.stored >= 0 or not self.stopped

    @property
    def has_data(self) -> bool:
        """True while records wait to be sent."""
        return self.buffered_bytes > 0

    @property
    def position(self) -> Position:
        """What the open transaction stores."""
        return Position(
            self.next_offset,
            self.topic_id,
            self.target_topic_id,
            self._leader_epoch,
            self._timestamp,
        )

    def stop(self, reason: str, *, drops_fetched: bool = False) -> None:
        """Mirror the partition no more. What was fetched goes to the target all the same, unless it
        is dropped."""
        self.stopped = self.stopped or reason
        if drops_fetched:
            self._pieces.clear()
            self.buffered_bytes = 0

    def on_fetch(self, records: memoryview, aborted: list[tuple[int, int]]) -> int:
        """Keep the batches of a fetch from `fetch_offset` on; how many bytes. Raises KafkaError."""
        before = self.buffered_bytes
        self.trouble = ""
        for piece in pieces_of(records, self.fetch_offset, aborted):
            if piece.next_offset <= self.fetch_offset:
                continue
            for part in self._not_skipped(piece):
                self._pieces.append(part)
                self.buffered_bytes += part.size_bytes
            self.fetch_offset, self.fetch_epoch = piece.next_offset, piece.leader_epoch
        return self.buffered_bytes - before

    def _not_skipped(self, piece: Piece) -> list[Piece]:
        """The piece, or only its position if the other mirror wrote it."""
        if self.skipped is None or not piece.records:
            return [piece]
        first = piece.source_offset if piece.data is not None else piece.offsets[0]
        after = self.skipped.after_target(first)
        if after <= first:
            return [piece]
        # The other mirror's batches are its alone: a batch is skipped as a whole.
        return [Piece(piece.next_offset, piece.leader_epoch)]

    def take(self) -> Piece | None:
        """The next batch to send; None when there is none. Positions before it are passed."""
        while self._pieces:
            piece = self._pieces.popleft()
            if piece.records:
                self.buffered_bytes -= piece.size_bytes
                if piece.is_small:
                    piece = self._with_next(piece)
                self._timestamp = max(self._timestamp, piece.max_timestamp)
            self.next_offset = piece.next_offset
            self._leader_epoch = piece.leader_epoch
            if piece.records:
                return piece
        return None

    def _with_next(self, first: Piece) -> Piece:
        """A small batch together with the small ones behind it."""
        found, size = [first], first.size_bytes
        while self._pieces and (self._pieces[0].is_small or not self._pieces[0].records):
            size += self._pieces[0].size_bytes
            if size > MERGED_BYTES:
                break
            found.append(self._pieces.popleft())
            self.buffered_bytes -= found[-1].size_bytes
        return first if len(found) == 1 else merged(found)

    def written(self, piece: Piece, base_offset: int) -> set[int]:
        """The target has put a batch at `base_offset`; the chunks of the map that changed."""
        return self.offset_map.add(piece.runs(base_offset))

    def records(self, chunks: set[int]) -> list[StateRecord]:
        """What the open transaction stores of this partition."""
        gone = self.offset_map.prune(self.end.log_start_offset)
        rows = [stored_position(self.tp, self.position)]
        rows += [chunk_record(self.tp, c, self.offset_map.chunk(c)) for c in sorted(chunks)]
        return rows + [chunk_record(self.tp, c, None) for c in gone]

    def committed(self) -> None:
        """The open transaction is committed."""
        self.stored = self.next_offset
