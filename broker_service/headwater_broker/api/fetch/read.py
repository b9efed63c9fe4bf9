"""One pass over the partitions of a fetch: bounds, errors, slices. Touches no socket."""

from __future__ import annotations

from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater_broker.api.api_config import HOT_TAIL_BYTES, SENDFILE_MIN_BYTES
from headwater_broker.api.context import Services
from headwater_broker.api.fetch.replica_selector import LEADER, preferred_replica
from headwater_broker.api.fetch.request_codec import (
    MAX_BYTES,
    NONE,
    RACK_SINCE,
    ZSTD_SINCE,
    FetchFrame,
)
from headwater_broker.api.fetch_session.cache import FetchSession
from headwater_broker.api.fetch_session.partition import FetchItem
from headwater_broker.api.leadership_confirmation import UnconfirmedError
from headwater_broker.api.replies import FilePart, Part
from headwater_broker.log.results import EMPTY, LogSlice
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replica_errors import not_leader
from headwater_broker.replica.truncation import EpochEnd
from headwater_broker.security.session import Session

READ_COMMITTED = 1
_READ = Operation.READ
_TOPIC = ResourceType.TOPIC
_NO_ZSTD = f"zstd needs Fetch {ZSTD_SINCE}"


class PartitionRead:
    """The result of a fetch for one partition."""

    __slots__ = (
        "aborted",
        "code",
        "diverging",
        "high_watermark",
        "is_remote",
        "item",
        "last_stable_offset",
        "log_start_offset",
        "message",
        "name",
        "part_size",
        "partition",
        "preferred",
        "remote",
        "slice",
    )

    def __init__(self, item: FetchItem, name: str) -> None:
        self.item = item
        self.name = name
        self.partition: Partition | None = None
        self.code: int = 0
        self.message = ""
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.aborted: list[tuple[int, int]] | None = None
        self.diverging: EpochEnd | None = None
        self.slice: LogSlice = EMPTY
        self.preferred = LEADER
        """The replica that the consumer is sent to (KIP-392)."""
        self.is_remote = False
        """True when the offset is below the local log start: the records are in the Delta table."""
        self.remote: tuple[int, int, int] | None = None
        """Descriptor, position and size of the records from the Delta table."""

    @property
    def is_beyond_end(self) -> bool:
        """True when a leader refuses the offset because it is beyond the log end offset."""
        partition = self.partition
        return (
            self.code == ErrorCode.OFFSET_OUT_OF_RANGE
            and partition is not None
            and partition.is_leader
            and self.item.fetch_offset > partition.log.log_end_offset
        )

    def unconfirmed(self) -> UnconfirmedError:
        """The refusal of `is_beyond_end`. The leader epoch is that of now: whoever leads anew by
        the time of the answer has not looked at its log again."""
        partition = self.partition
        assert partition is not None
        return UnconfirmedError(
            self, partition.topic, partition.partition, partition.leader_epoch,
            f"offset {self.item.fetch_offset} lies beyond the end",
        )  # fmt: skip

    def set_offsets(self, partition: Partition) -> None:
        """Set the offsets that every response has."""
        self.high_watermark = partition.high_watermark
        self.last_stable_offset = partition.last_stable_offset
        self.log_start_offset = partition.log.log_start_offset

    def fail(self, code: ErrorCode, message: str) -> None:
        """Set the error of this partition."""
        self.code = code
        self.message = message
        self.slice = EMPTY
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1

    def lose_disk(self, error: OSError) -> None:
        """The records were found but cannot be read: the disk fails, as at any read of the log."""
        partition = self.partition
        assert partition is not None
        failed = partition.log.storage_error(error)
        partition.check_storage(failed)
        self.fail(failed.code, failed.detail)


def read_all(
    services: Services,
    session: Session,
    frame: FetchFrame,
    items: list[FetchItem],
    version: int,
    *,
    is_first: bool,
    omits_unchanged: bool = False,
) -> tuple[list[PartitionRead], int, bool]:
    """(a read per item, bytes that count for min_bytes, whether to answer at once).

    `is_first`: the request has just come; a follower's position counts once. `omits_unchanged`:
    once max_bytes is reached there is no read of an item of which nothing else is new: for the
    incremental fetches of consumers. At least one whole batch is read, even beyond max_bytes
    (KIP-74).
    """
    total = used = 0
    is_urgent = False
    reads = []
    may_read_followers = frame.replica_id < 0 and version >= RACK_SINCE
    partitions = services.replicas.partitions
    for item in items:
        is_full = frame.max_bytes <= used > 0 and total >= frame.min_bytes
        if is_full and omits_unchanged and is_unchanged(item):
            continue
        topic = item.topic
        if isinstance(topic, str):
            name, partition = topic, partitions.get((topic, item.partition))
        else:
            name, partition = _resolve_id(services, topic, item.partition)
        read = PartitionRead(item, name)
        reads.append(read)
        try:
            item.located = None
            # Rights before existence: without the right a missing topic gets the same error.
            if name and frame.replica_id < 0 and not session.allows(_READ, _TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no READ on topic {name}")
            if partition is None:
                raise _not_here(services, item, name)
            read.partition = partition
            left = frame.max_bytes - used if frame.max_bytes > used else 0
            if frame.rack_id and _is_sent_away(services, session.listener, frame, read, partition):
                is_urgent = True
                continue
            _check(partition, item, version, leader_only=not may_read_followers)
            read_one(services, frame, read, partition, left, used == 0, is_first=is_first)
            part = read.slice
            size = part.size_bytes
            counted = total + size
            if counted < frame.min_bytes and frame.replica_id < 0 and not read.is_remote:
                counted += _left_out(frame, read, partition, min(item.max_bytes, left))
        except KafkaError as error:
            read.fail(error.code, error.detail)
            is_urgent = True
            continue
        item.located = partition
        used += size
        total = counted
        # A response holds batches of one segment: the end of an older one does not wait for more.
        is_urgent = (
            is_urgent
            or read.is_remote
            or read.diverging is not None
            or (size > 0 and part.file is not partition.log.active.file)
        )
    return reads, total, is_urgent


def unsettled(session: FetchSession, reader: Session, isolation: int) -> list[FetchItem]:
    """The partitions of a consumer's session that a response may name.

    The others are settled: `read_all` would find no error, no record and no newer high watermark or
    log start. Most partitions of a session are; this check costs a tenth of their reads.
    """
    session.check_reader(reader)
    found = []
    for item in session.items.values():
        partition, offset = item.located, item.fetch_offset
        if partition is not None:
            high, log = partition.high_watermark, partition.log
            if (
                item.sent_high_watermark == high
                and (
                    offset == high or (isolation and partition.last_stable_offset <= offset < high)
                )
                and item.sent_log_start == log.log_start_offset
                and item.current_leader_epoch in (partition.leader_epoch, NONE)
                and partition.is_leader
                and item.last_fetched_epoch == NONE
                and log.local_log_start_offset <= offset
            ):
                continue
        found.append(item)
    return found


def is_unchanged(item: FetchItem) -> bool:
    """True when a read of this partition may find records, but no error and no newer high
    watermark or log start: the check of `unsettled` without the offset."""
    partition = item.located
    return (
        partition is not None
        and item.sent_high_watermark == partition.high_watermark
        and item.sent_log_start == partition.log.log_start_offset
        and item.current_leader_epoch in (partition.leader_epoch, NONE)
        and partition.is_leader
        and item.last_fetched_epoch == NONE
        and partition.log.local_log_start_offset <= item.fetch_offset <= partition.high_watermark
    )


def read_one(
    services: Services,
    frame: FetchFrame,
    read: PartitionRead,
    partition: Partition,
    budget: int,
    min_one: bool,
    *,
    is_first: bool,
) -> None:
    """Fill `read` from a partition whose leader epoch has been checked. Raises KafkaError."""
    item = read.item
    offset = item.fetch_offset
    log = partition.log
    replica: int | None = None
    if frame.replica_id >= 0:
        replica = frame.replica_id
        if is_first:
            read.diverging = partition.update_follower(
                replica,
                frame.replica_epoch,
                offset,
                services.clock.monotonic(),
                last_fetched_epoch=item.last_fetched_epoch,
                log_start_offset=item.log_start_offset,
            )
    elif item.last_fetched_epoch >= 0:
        read.diverging = partition.divergence(offset, item.last_fetched_epoch)
    if read.diverging is None:
        if replica is None and log.log_start_offset <= offset < log.local_log_start_offset:
            if services.remote_log is None:
                detail = f"{partition.topic}-{partition.partition}: offset {offset} is tiered"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, detail)
            read.is_remote = True
        elif replica is not None and is_held_back(services, partition, replica):
            read.slice = EMPTY
        elif (
            replica is None
            and offset > log.log_end_offset
            and not partition.is_leader
            and not frame.rack_id
        ):
            # The consumer takes this follower for the leader, which may have more records.
            raise not_leader(partition, services.broker_id)
        elif budget > 0 or min_one:
            size = budget if budget < item.max_bytes else item.max_bytes
            read.slice = partition.read(offset, size, frame.isolation, min_one, replica)
    read.set_offsets(partition)
    if frame.isolation == READ_COMMITTED and replica is None:
        part, stable = read.slice, read.last_stable_offset
        read.aborted = log.aborted_in_slice(offset, part, stable) if part.size_bytes else []


def _check(partition: Partition, item: FetchItem, version: int, *, leader_only: bool) -> None:
    """Raises KafkaError where no reader of this version is served."""
    partition.check_leader_epoch(item.current_leader_epoch, leader_only=leader_only)
    if version < ZSTD_SINCE and partition.log.config.compression_type == "zstd":
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, _NO_ZSTD)


def _resolve_id(services: Services, topic: bytes, index: int) -> tuple[str, Partition | None]:
    """The topic's name and the hosted partition; the name is empty for an unknown id."""
    name = services.replicas.topic_ids.get(topic)
    if name is None:
        known = services.view.topic_by_id.get(UUID(bytes=topic))
        return (known.name if known else ""), None
    return name, services.replicas.partitions.get((name, index))


def _left_out(frame: FetchFrame, read: PartitionRead, partition: Partition, size: int) -> int:
    """The rest of `size` when the next batch does not fit into it. It counts for min_bytes, as in
    Kafka, where a slice may end inside a batch; else a full fetch would wait."""
    part = read.slice
    if part.size_bytes >= size or read.diverging is not None:
        return 0
    if part.size_bytes and part.position + part.size_bytes == part.file.size_bytes:
        return 0
    there = partition.read(read.item.fetch_offset, MAX_BYTES, frame.isolation).size_bytes
    return max(min(there, size) - part.size_bytes, 0)


def is_held_back(services: Services, partition: Partition, replica: int) -> bool:
    """A follower out of sync gets no records while the leader's quota is exceeded (KIP-73)."""
    return replica not in partition.isr and services.replicas.quotas.leader.throttles(partition)


def _is_sent_away(
    services: Services, listener: str, frame: FetchFrame, read: PartitionRead, partition: Partition
) -> bool:
    """True when the consumer is sent to a follower in its rack, without records."""
    if frame.replica_id >= 0 or not partition.is_leader:
        return False
    partition.check_leader_epoch(read.item.current_leader_epoch)
    read.preferred = preferred_replica(
        services, partition, listener, frame.rack_id, read.item.fetch_offset
    )
    read.set_offsets(partition)
    return read.preferred != LEADER


def _not_here(services: Services, item: FetchItem, name: str) -> KafkaError:
    if not name:
        topic = item.topic
        shown = topic.hex() if isinstance(topic, bytes) else topic
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {shown} is not known here")
    return services.absent(name, item.partition)


def part_of_file(services: Services, partition: Partition, part: LogSlice) -> Part | None:
    """The records of a slice, copied if small; None when a disk thread must read them into the
    page cache first. Raises OSError."""
    file, position, size = part.file, part.position, part.size_bytes
    fd = file.fileno()
    if fd >= 0:
        if not _is_hot_tail(partition, part) and services.warmer.is_cold(fd, position, size):
            return None
        if size >= SENDFILE_MIN_BYTES:
            return FilePart(fd, position, size)
    data = file.read_at(position, size)
    if len(data) != size:
        where = f"{partition.topic}-{partition.partition}"
        raise OSError(f"{where}: {len(data)} bytes of {size} read")
    return data


def _is_hot_tail(partition: Partition, part: LogSlice) -> bool:
    """The end of the active segment was just written, and is in the page cache: no probe."""
    file = part.file
    return file is partition.log.active.file and file.size_bytes - part.position <= HOT_TAIL_BYTES
