"""One partition of a share fetch: what may be acquired, read, locked, and cut to what was locked.

Touches no socket. Bytes that are not in the page cache, and tiered records, are for `later`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.remote_log import RemoteLogError
from headwater_broker.api.api_config import HOT_TAIL_BYTES, SENDFILE_MIN_BYTES
from headwater_broker.api.context import Services
from headwater_broker.api.replies import FilePart
from headwater_broker.api.share.response_codec import ShareRow
from headwater_broker.api.share.stored_batches import (
    ReadAt,
    StoredBatch,
    deliverable,
    stored_batches,
    up_to,
)
from headwater_broker.log.results import LogSlice
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.share.acquired_rows import Acquired
from headwater_broker.replica.share.led_partition import LedSharePartition
from headwater_broker.replica.share.sessions import PartitionId
from headwater_broker.replica.share.share_partition import Wanted

READS_PER_TURN = 4
"""Slices that one turn may read of a partition without a record to deliver: aborted, markers."""
READ_COMMITTED = "read_committed"

logger = logging.getLogger(__name__)


class Later(NamedTuple):
    """A partition whose records cannot be read at once."""

    key: PartitionId
    led: LedSharePartition
    cold: LogSlice | None
    """The slice that a disk thread is to bring in; None: the records are in the Delta table."""


class ShareRead:
    """The reads of one share fetch: they share its bounds."""

    def __init__(self, services: Services, member_id: str, wanted: Wanted, max_bytes: int) -> None:
        self._services = services
        self._member_id = member_id
        self._wanted = wanted
        self._bytes_left = max_bytes
        self._records_left = wanted.records
        self.later: list[Later] = []

    @property
    def is_full(self) -> bool:
        """True when the response may take nothing more."""
        return self._records_left <= 0 or self._bytes_left <= 0

    def available_bytes(self, led: LedSharePartition, most: int) -> int:
        """About how many bytes a member could acquire now, of at most `most`; for min_bytes."""
        offset = self._next_offset(led)
        if offset is None:
            return 0
        partition = led.partition
        if offset < partition.log.local_log_start_offset:
            return most
        # As much as an answer may take: within `most` bytes a batch that ends beyond is not read.
        return min(partition.read(offset, self._bytes_left, _isolation(led)).size_bytes, most)

    def read(self, key: PartitionId, led: LedSharePartition, *, is_warm: bool = False) -> ShareRow:
        """The row of one partition; without records when there are none, or they are for `later`.

        `is_warm`: a disk thread has brought in what comes next. Raises KafkaError.
        """
        row = ShareRow(key)
        for _ in range(READS_PER_TURN):
            offset = self._next_offset(led)
            if offset is None or self.is_full:
                return row
            if offset < led.partition.log.local_log_start_offset:
                if self._services.remote_log is None:
                    where = f"{led.partition.topic}-{key[1]}"
                    raise KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR, f"{where}: offset {offset} is tiered"
                    )
                self.later.append(Later(key, led, None))
                return row
            part = led.partition.read(offset, self._bytes_left, _isolation(led))
            if not part.size_bytes:
                return row
            if not is_warm and self._is_cold(led.partition, part):
                self.later.append(Later(key, led, part))
                return row
            try:
                self._take(led, offset, part, row)
            except OSError as error:
                raise _storage_error(led.partition, error) from error
            if row.acquired:
                return row
        led.wake()  # there was nothing to deliver so far: go on in the next turn
        return row

    def _next_offset(self, led: LedSharePartition) -> int | None:
        """Where to read; None: nothing may be acquired now."""
        machine, partition = led.loaded(), led.partition
        if not machine.can_acquire(led.limits):
            return None
        offset = machine.next_fetch_offset()
        bound = partition.last_stable_offset if _isolation(led) else partition.high_watermark
        return offset if offset < bound else None

    def _take(self, led: LedSharePartition, offset: int, part: LogSlice, row: ShareRow) -> None:
        file = part.file
        read_at: ReadAt = file.read_at
        if part.data is not None:
            read_at = partial(_of_bytes, part.data, part.position)
        batches = self._walk(led, offset, read_at, part.position, part.size_bytes)
        aborted: list[tuple[int, int]] = []
        if _isolation(led):
            stable = led.partition.last_stable_offset
            aborted = led.partition.log.aborted_in_slice(offset, part, stable)
        cut = self._acquire(led, offset, batches, aborted, row)
        if cut is None:
            return
        position, size = cut
        fd = file.fileno()
        if part.data is None and fd >= 0 and size >= SENDFILE_MIN_BYTES:
            row.records = FilePart(fd, position, size)
        else:
            row.records = read_at(position, size)

    def _walk(
        self, led: LedSharePartition, offset: int, read_at: ReadAt, position: int, size: int
    ) -> list[StoredBatch]:
        """As many batches as may be needed: those in flight, and new records as wanted."""
        end = max(led.loaded().end_offset, offset)
        return up_to(stored_batches(read_at, position, size), end + self._records_left - 1)

    def _acquire(
        self,
        led: LedSharePartition,
        offset: int,
        batches: list[StoredBatch],
        aborted: list[tuple[int, int]],
        row: ShareRow,
    ) -> tuple[int, int] | None:
        """Lock records for the member; position and size of the batches that hold them."""
        records = deliverable(batches, aborted)
        wanted = self._wanted._replace(records=self._records_left)
        row.acquired = led.acquire(
            self._member_id, offset, [(b.first, b.last) for b in records], wanted
        )
        last = records[-1].last if records else offset - 1
        machine = led.loaded()
        if batches and batches[-1].last > last and machine.end_offset > last:
            machine.skip_absent(last + 1, batches[-1].last)
        if not row.acquired:
            return None
        self._records_left -= sum(last - first + 1 for first, last, _ in row.acquired)
        position, size = _span(batches, row.acquired)
        self._bytes_left -= size
        return position, size

    async def read_remote(
        self, key: PartitionId, led: LedSharePartition, is_wanted: Callable[[], bool]
    ) -> ShareRow:
        """As `read`, of tiered records. Acquires none that are not wanted any more by the time they
        are read: of a closed session nobody would give them back. Raises KafkaError."""
        row = ShareRow(key)
        remote_log, partition = self._services.remote_log, led.partition
        offset = self._next_offset(led)
        if offset is None or remote_log is None or led.is_reading or self.is_full:
            return row
        topic = self._services.tiered_topic(partition.topic, partition.topic_id)
        led.is_reading = True
        try:
            part = await remote_log.read(topic, key[1], offset, self._bytes_left)
            fd = os.open(part.path, os.O_RDONLY)
        except (RemoteLogError, OSError) as error:
            self._services.meters.remote_errors += 1
            where = f"{partition.topic}-{key[1]} at {offset}"
            logger.warning("cannot read the table of %s: %s", where, error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{where}: {error}") from error
        finally:
            led.is_reading = False
            led.wake()
        file = FilePart(fd, part.position, part.size_bytes, owned=True)
        try:
            if not is_wanted():
                return row
            if led.is_over:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{led} is over")
            batches = self._walk(led, offset, partial(_of_fd, fd), part.position, part.size_bytes)
            cut = self._acquire(led, offset, batches, [], row)
        except OSError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        finally:
            if not row.acquired:
                file.release()
        if cut is not None:
            file.position, file.size = cut
            row.records = file
        return row

    def _is_cold(self, partition: Partition, part: LogSlice) -> bool:
        file = part.file
        fd = file.fileno()
        if part.data is not None or fd < 0:
            return False
        if file is partition.log.active.file and file.size_bytes - part.position <= HOT_TAIL_BYTES:
            return False
        return self._services.warmer.is_cold(fd, part.position, part.size_bytes)


def _isolation(led: LedSharePartition) -> int:
    return 1 if led.settings.share_isolation_level == READ_COMMITTED else 0


def _span(
    batches: list[StoredBatch], acquired: list[Acquired] | tuple[Acquired, ...]
) -> tuple[int, int]:
    """Position and size of the batches from that of the first acquired offset to the last's."""
    first, last = acquired[0].first, acquired[-1].last
    held = [batch for batch in batches if batch.last >= first and batch.first <= last]
    end = held[-1].position + held[-1].size_bytes
    return held[0].position, end - held[0].position


def _of_bytes(data: bytes, start: int, position: int, size: int) -> bytes:
    return data[position - start : position - start + size]


def _of_fd(fd: int, position: int, size: int) -> bytes:
    return os.pread(fd, size, position)


def _storage_error(partition: Partition, error: OSError) -> KafkaError:
    """The disk fails, as at any read of the log."""
    failed = partition.log.storage_error(error)
    partition.check_storage(failed)
    return failed
