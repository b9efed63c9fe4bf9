"""The rule of full segments: by size, age, offsets or its indexes (Kafka's LogSegment.shouldRoll).

What every append compares with is computed once per segment (`arm`) and kept on the segment.
"""

from __future__ import annotations

from headwater.entropy import Entropy
from headwater_broker.log.index import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_segment import LogSegment


class RollPolicy:
    """The settings of one log that bound its segments."""

    def __init__(self, config: LogConfig, entropy: Entropy) -> None:
        self._config = config
        self._entropy = entropy
        limit = config.segment_index_bytes
        self._offset_entries_max = max(limit // OFFSET_ENTRY.size, 1)
        self._time_entries_max = max(limit // TIME_ENTRY.size - 1, 1)

    @property
    def index_entries_max(self) -> int:
        """How many entries both indexes of a segment may hold (segment.index.bytes)."""
        return min(self._offset_entries_max, self._time_entries_max)

    def arm(self, segment: LogSegment) -> None:
        """Compute the bytes, the offset and the time beyond which `is_due` must be asked.

        The bytes are those at which an index could be full at the earliest.
        """
        config = self._config
        bytes_bound = min(
            config.segment_bytes, self.index_entries_max * (config.index_interval_bytes + 1)
        )
        segment.roll_at_bytes = min(bytes_bound, RELATIVE_OFFSET_MAX)
        segment.roll_at_offset = segment.base_offset + RELATIVE_OFFSET_MAX
        jitter = 0.0
        if config.segment_jitter_ms:
            most = min(config.segment_jitter_ms, config.effective_segment_ms)
            jitter = self._entropy.uniform(0, most)
        since = segment.first_timestamp if segment.first_timestamp >= 0 else segment.created_ms
        segment.roll_at_ms = since + config.effective_segment_ms - int(jitter)

    def is_due(
        self, segment: LogSegment, size: int, last_offset: int, timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch of `size` bytes needs a new segment. An empty segment is never full."""
        position = segment.file.size_bytes
        if position == 0:
            return False
        stamp = timestamp if segment.first_timestamp >= 0 <= timestamp else now_ms
        return (
            position + size > self._config.segment_bytes
            or stamp > segment.roll_at_ms
            or not segment.can_hold(last_offset, position, size)
            or len(segment.offset_index) >= self._offset_entries_max
            or len(segment.time_index) >= self._time_entries_max
        )
