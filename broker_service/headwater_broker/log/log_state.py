"""What a log holds between calls, and the small steps that append, lookup and upkeep share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.checkpoint_files import HAS_GAPS, LEADER_EPOCHS, encode_epochs
from headwater_broker.log.index import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_context import Disposal, LogContext
from headwater_broker.log.log_loader import LoadedLog
from headwater_broker.log.segment import Segment


class LogState:
    """The attributes of `PartitionLog`."""

    def __init__(
        self,
        context: LogContext,
        topic: str,
        topic_id: UUID,
        partition: int,
        path: str,
        directory_id: UUID,
        config: LogConfig,
        loaded: LoadedLog,
    ) -> None:
        self.context = context
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.path = path
        self.directory_id = directory_id
        self.segments = loaded.segments
        self.bases = [segment.base_offset for segment in self.segments]
        self.active = self.segments[-1]
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.local_log_start_offset = max(loaded.log_start_offset, self.bases[0])
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.is_gapless = loaded.is_gapless
        """A gap found at start is a loss, see `recovery`; `allow_gaps` ends it."""
        self.recovered = loaded.recovered
        self.size_bytes = sum(segment.file.size_bytes for segment in self.segments)
        self.unflushed_since_ms = -1
        self.finished_flushes: deque[tuple[int, int]] = deque()
        """(truncations then, offset) of flushes done off the loop; see `take_finished_flushes`."""
        self.truncations = 0
        self.leaving: dict[int, Segment] = {}
        """By base offset: discarded, and not yet renamed."""
        self.leaving_lock = Lock()
        """Held while a discarded segment is renamed, on the loop or off it."""
        self.first_dirty_offset = 0
        """Compaction has seen everything below it (cleaner-offset-checkpoint)."""
        self.uncleanable_reason = ""
        """Why this log is not compacted any more; empty: it is."""
        self.is_closed = False
        if loaded.set_aside:
            delay_ms = config.file_delete_delay_ms
            context.dispose(Disposal(tuple(loaded.set_aside), (), delay_ms))
        self.on_start: Callable[[], None] | None = None
        """Called when the log start has moved: its replica, while that is hosted."""
        self.update_config(config)
        if self.epochs.changed:
            self.save_epochs()

    def update_config(self, config: LogConfig) -> None:
        """Replace the settings; they count from the next append or tick on."""
        self.config = config
        self._flush_messages = config.flush_messages
        self._interval_bytes = config.index_interval_bytes
        self._batch_bytes_max = config.batch_bytes_max
        self._after_max_ms = config.timestamp_after_max_ms
        self._looks_closer = (
            config.is_log_append_time
            or config.is_compacted
            or config.compression_type != "producer"
            or config.bounds_age
        )
        self.arm_roll()

    def index_entries_max(self) -> tuple[int, int]:
        """How many entries the offset and the time index may hold (segment.index.bytes)."""
        limit = self.config.segment_index_bytes
        return max(limit // OFFSET_ENTRY.size, 1), max(limit // TIME_ENTRY.size - 1, 1)

    def arm_roll(self) -> None:
        """Compute once what each append compares with: bytes, offset and time of the next roll.

        The byte bound is where an index could be full at the earliest; `should_roll` then looks.
        """
        config, segment = self.config, self.active
        entries = min(self.index_entries_max())
        bytes_bound = min(config.segment_bytes, entries * (config.index_interval_bytes + 1))
        self._roll_bytes = min(bytes_bound, RELATIVE_OFFSET_MAX)
        self._roll_offset = segment.base_offset + RELATIVE_OFFSET_MAX
        jitter = 0.0
        if config.segment_jitter_ms:
            most = min(config.segment_jitter_ms, config.effective_segment_ms)
            jitter = self.context.entropy.uniform(0, most)
        since = segment.first_timestamp if segment.first_timestamp >= 0 else segment.created_ms
        segment.roll_at_ms = since + config.effective_segment_ms - int(jitter)

    def relocate(self, path: str) -> None:
        """The folder was renamed; nothing that an earlier call handed elsewhere may be left."""
        self.path = path
        self.snapshots.relocate(path)
        for segment in self.segments:
            segment.relocate(path)

    def save_epochs(self) -> None:
        """Write leader-epoch-checkpoint."""
        write = self.epochs_writer()
        try:
            write()
        except OSError as e:
            self.epochs.changed = True
            raise self.storage_error(e) from e

    def epochs_writer(self) -> Callable[[], None]:
        """Writes leader-epoch-checkpoint as it is now; in any thread. May raise OSError."""
        data = encode_epochs(self.epochs.entries)
        self.epochs.changed = False
        return partial(self.context.files.write_atomic, f"{self.path}/{LEADER_EPOCHS}", data)

    def allow_gaps(self) -> None:
        """Offsets will be missing (compaction here or at the leader): no start may take them for
        lost. Repeats do nothing. Raises KAFKA_STORAGE_ERROR."""
        if not self.is_gapless:
            return
        try:
            self.context.files.write_atomic(f"{self.path}/{HAS_GAPS}", b"version: 0\n")
        except OSError as e:
            raise self.storage_error(e) from e
        self.is_gapless = False

    @contextmanager
    def touching_files(self) -> Iterator[None]:
        """An OSError in here is the disk's. Raises KAFKA_STORAGE_ERROR."""
        try:
            yield
        except OSError as e:
            raise self.storage_error(e) from e

    def storage_error(self, error: OSError) -> KafkaError:
        """Tell the manager (which takes the directory offline and closes this log, unless it is
        only out of descriptors); the error to answer with."""
        self.context.failed(self.path, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._where()}: {error}")

    def next_offset_of(self, index: int) -> int:
        """Where segment `index` ends."""
        return self.bases[index + 1] if index + 1 < len(self.bases) else self.log_end_offset

    def write_indexes(self) -> None:
        """Write the index entries that the active segment's files lack; a disk error takes the
        data folder offline."""
        if self.is_closed:
            return
        try:
            self.active.write_indexes()
        except OSError as e:
            self.context.failed(self.path, e)

    def replace_segments(self, segments: list[Segment]) -> None:
        """The new list of segments; the last one is active."""
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.size_bytes = sum(segment.file.size_bytes for segment in segments)
        self.arm_roll()

    def _where(self) -> str:
        return f"{self.topic}-{self.partition}"
