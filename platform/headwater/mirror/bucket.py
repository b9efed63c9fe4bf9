"""One bucket of a mirror: its partitions' batches go to the target in transactions.

The order that makes it exactly once: `init` first, which fences every older owner and ends its
transaction; only then read the positions. A transaction holds data, and, once the target has
acknowledged it, where the data came from and where it is. After any error it begins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.client.admin.topics import list_one_offset
from headwater.client.cluster import Cluster
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.batches import Piece
from headwater.mirror.core.partition_copy import PartitionCopy
from headwater.mirror.core.selection import bucket_of
from headwater.mirror.core.state import (
    Heartbeat,
    MirrorState,
    Position,
    StateRecord,
    heartbeat_record,
    positions_topic,
    transactional_id,
)
from headwater.mirror.source_reader import EARLIEST, LATEST, READ_COMMITTED, SourceReader
from headwater.mirror.state_reader import READ_UNCOMMITTED, read_state
from headwater.mirror.state_writer import state_piece
from headwater.mirror.target_producer import FENCED, ProduceError, TargetProducer, Written
from headwater.mirror.topic_sync import MirroredTopic
from headwater.wire.schema import SchemaError

IN_FLIGHT_BYTES = 4 << 20
"""Of one bucket, without an acknowledgement."""
REFUSALS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""A batch that the target refuses so is refused again: its partition stops."""
log = logging.getLogger(__name__)


class PromotedError(HeadwaterError):
    """The target was promoted: the mirror writes no more."""


@dataclass(slots=True)
class MirrorParts:
    """What the buckets of one process share."""

    config: MirrorConfig
    source: Cluster
    target: Cluster
    owner: str
    """Names this process in heartbeats."""
    buckets: int
    partitions: Mapping[TopicPartition, MirroredTopic] = field(default_factory=dict)
    """What is mirrored, by the last look at both clusters."""
    reverse: MirrorState = field(default_factory=MirrorState)
    """What the mirror in the other direction stored in the source."""


class Bucket:
    """The owner's work for one bucket."""

    def __init__(self, number: int, parts: MirrorParts) -> None:
        self.number = number
        self.copies: dict[TopicPartition, PartitionCopy] = {}
        self.state = MirrorState()
        self.stopped: dict[TopicPartition, str] = {}
        """Partition -> why it is not mirrored any more. It outlives a failed transaction."""
        self.trouble = ""
        self.records = self.transactions = self.bytes_sent = 0
        self._parts = parts
        self._topic = positions_topic(parts.config.mirror_id)
        self._work = asyncio.Event()
        self._stopping = False
        self._beat_at = 0.0
        self._appended: list[StateRecord] = []
        self._append_waits: list[asyncio.Future[None]] = []
        self._storing_waits: list[asyncio.Future[None]] = []
        self._producer = TargetProducer(
            parts.target,
            transactional_id(parts.config.mirror_id, number),
            parts.config.transaction_timeout_ms,
            f"mirror-{number}",
        )
        self._reader = self._new_reader()

    def _new_reader(self) -> SourceReader:
        parts, lane = self._parts, f"mirror-{self.number}"
        return SourceReader(parts.source, parts.config, self.copies, lane, self._work.set)

    @property
    def bytes_fetched(self) -> int:
        """Since the bucket began its last session."""
        return self._reader.bytes_fetched

    def stop(self) -> None:
        """End `run` after the open transaction."""
        self._stopping = True
        self._work.set()

    def append(self, records: list[StateRecord]) -> asyncio.Future[None]:
        """Store these records with the next transaction; the future is done once it committed, and
        cancelled if it did not."""
        self._appended += records
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._append_waits.append(done)
        self._work.set()
        return done

    async def run(self) -> None:
        """Mirror until `stop`. Raises PromotedError."""
        tries = 0
        while not self._stopping:
            before = self.transactions
            try:
                await self._session()
            except (KafkaError, OSError, SchemaError, ValueError, ProduceError) as error:
                tries = 0 if self.transactions > before else tries + 1
                await self._pause(error, tries)
            finally:
                self._reader.stop()
                self._producer.drop()
                for wait in self._storing_waits:
                    if not wait.done():
                        wait.cancel()

    async def _pause(self, error: Exception, tries: int) -> None:
        text = str(error) or type(error).__name__
        if text != self.trouble:
            log.warning("bucket %d begins again: %s", self.number, text)
        self.trouble = text
        if isinstance(error, ProduceError) and error.code in REFUSALS:
            self.stopped[error.tp] = refusal(error)
            log.error("%s-%d is not mirrored: %s", *error.tp, self.stopped[error.tp])
            return
        code = getattr(error, "code", None)
        # A new owner or a promotion has fenced this one: the group soon says which.
        pause_s = 3.0 if code in FENCED else self._parts.target.backoff_s(tries)
        try:
            async with asyncio.timeout(pause_s):
                while not self._stopping:
                    self._work.clear()
                    await self._work.wait()
        except TimeoutError:
            pass
        if isinstance(error, ProduceError):
            await self._parts.target.refresh({error.tp.topic})

    async def _session(self) -> None:
        """From `init` on, until `stop` or an error."""
        await self._producer.init()
        self.state = await read_state(
            self._parts.target, self._topic, [self.number], isolation=READ_UNCOMMITTED
        )
        if self.state.promoted_ms is not None:
            raise PromotedError(promoted_text(self._parts.config.mirror_id))
        self.copies.clear()
        self._reader = self._new_reader()
        await self.adopt()
        self.trouble = ""
        while True:
            await self._wait_for_work()
            if self._stopping:
                return
            await self.adopt()
            await self._transaction()

    async def adopt(self) -> None:
        """Begin with the partitions that are new, drop those that are mirrored no longer."""
        mine = {
            tp: topic
            for tp, topic in self._parts.partitions.items()
            if bucket_of(tp, self._parts.buckets) == self.number
        }
        if mine.keys() == self.copies.keys():
            return
        fresh = mine.keys() - self.copies.keys()
        if fresh:
            await self._parts.source.refresh({tp.topic for tp in fresh})
            await self._parts.target.refresh({tp.topic for tp in fresh})
        for tp in self.copies.keys() - mine.keys():
            del self.copies[tp]
        for tp in sorted(fresh):
            self.copies[tp] = await self._copy(tp, mine[tp])
        self._reader.wake()

    async def _copy(self, tp: TopicPartition, topic: MirroredTopic) -> PartitionCopy:
        """A partition with its stored position, or where it begins."""
        stored = self.state.positions.get(tp)
        offset_map = self.state.offset_map(tp)
        reverse = self._parts.reverse
        skipped = reverse.offset_map(tp) if tp in reverse.positions else None
        position = stored or await self._first_position(tp, topic)
        position = position._replace(
            next_offset=max(position.next_offset, reverse.orphans.get(tp, 0))
        )
        copy = PartitionCopy(tp, position, offset_map, skipped)
        if stored is None:
            copy.stored = -1
            if skipped is None:
                await self._check_empty(copy)
        if tp in self.stopped:
            copy.stop(self.stopped[tp])
        elif stored is not None and stored.target_topic_id != topic.target_id:
            copy.stop(
                f"topic {tp.topic} was created again in the target: `headwater mirror forget "
                f"{tp.topic}` begins it anew"
            )
        return copy

    async def _first_position(self, tp: TopicPartition, topic: MirroredTopic) -> Position:
        source = self._parts.source
        when, level = (
            (LATEST, READ_COMMITTED) if self._parts.config.starts_latest else (EARLIEST, 0)
        )

        async def attempt() -> int:
            return (await list_one_offset(source, tp, when, level)).offset

        start = await source.retrying(f"offsets of {tp}", attempt, topics=(tp.topic,))
        return Position(start, topic.source_id, topic.target_id)

    async def _check_empty(self, copy: PartitionCopy) -> None:
        """A topic that was never mirrored must be empty in the target, or mirroring it again would
        double its records."""
        if self._parts.config.appends:
            return
        target, tp = self._parts.target, copy.tp

        async def attempt() -> int:
            return (await list_one_offset(target, tp, LATEST, 0)).offset

        end = await target.retrying(f"offsets of {tp}", attempt, topics=(tp.topic,))
        if end > 0:
            copy.stop(
                f"the target's {tp.topic}-{tp.partition} has records up to offset {end} that this "
                "mirror did not write: delete the topic there, or set target.existing=append"
            )

    async def _wait_for_work(self) -> None:
        """Wait for records, or until the next heartbeat is due."""
        clock = self._parts.target.clock
        while not self._stopping:
            self._work.clear()
            if self._appended or any(copy.has_data for copy in self.copies.values()):
                return
            left_s = self._beat_at - clock.monotonic()
            if left_s <= 0:
                return
            try:
                async with asyncio.timeout(left_s):
                    await self._work.wait()
            except TimeoutError:
                return

    async def _transaction(self) -> None:
        """Data until the time or the size is up, then what is stored of it, then commit."""
        clock, config, producer = self._parts.target.clock, self._parts.config, self._producer
        deadline = clock.monotonic() + config.commit_s
        chunks: dict[TopicPartition, set[int]] = {}
        sent = records = 0
        has_data = any(copy.has_data for copy in self.copies.values())
        while has_data and sent < config.commit_bytes and clock.monotonic() < deadline:
            round_ = self._next_round()
            if not round_:
                if self._stopping or self._appended or not await self._more_before(deadline):
                    break
                continue
            pieces = [(tp, piece) for rows in round_.values() for tp, piece in rows.items()]
            await producer.add_partitions({tp for tp, _ in pieces})
            for node, rows in round_.items():
                await producer.send(node, rows)
            sent += sum(piece.size_bytes for _, piece in pieces)
            records += sum(piece.records for _, piece in pieces)
            self._reader.wake()
            self._apply(await producer.wait_for_room(IN_FLIGHT_BYTES), chunks)
        self._apply(await producer.wait_for_room(0), chunks)
        await self._store(chunks)
        await producer.commit()
        self._committed(records, sent)

    async def _more_before(self, deadline: float) -> bool:
        """Wait for more data; False when the time is up."""
        self._work.clear()
        try:
            async with asyncio.timeout(max(0.0, deadline - self._parts.target.clock.monotonic())):
                await self._work.wait()
        except TimeoutError:
            return False
        return True

    def _next_round(self) -> dict[int, dict[TopicPartition, Piece]]:
        """One batch of each partition that has any, by the leader in the target."""
        found: dict[int, dict[TopicPartition, Piece]] = {}
        cache = self._parts.target.cache
        for tp, copy in self.copies.items():
            if copy.has_data:
                node = cache.leader(*tp)
                if node not in cache.brokers:
                    raise KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"{tp.topic}-{tp.partition} in the target"
                    )
                piece = copy.take()
                if piece is not None:
                    found.setdefault(node, {})[tp] = piece
        return found

    def _apply(self, written: list[Written], chunks: dict[TopicPartition, set[int]]) -> None:
        for tp, piece, base_offset in written:
            chunks.setdefault(tp, set()).update(self.copies[tp].written(piece, base_offset))

    async def _store(self, chunks: dict[TopicPartition, set[int]]) -> None:
        """Write positions, maps, a heartbeat when it is due, and what was appended."""
        rows, self._appended = self._appended, []
        self._storing_waits, self._append_waits = self._append_waits, []
        for tp, copy in self.copies.items():
            if not copy.has_data:
                copy.take()  # passes markers and aborted batches behind the last record
            if tp in chunks or copy.has_news:
                rows += copy.records(chunks.get(tp, set()))
        clock = self._parts.target.clock
        if clock.monotonic() >= self._beat_at:
            self._beat_at = clock.monotonic() + self._parts.config.heartbeat_s
            rows.append(heartbeat_record(self.number, self._heartbeat()))
        if not rows:
            return
        tp = TopicPartition(self._topic, self.number)
        await self._producer.add_partitions({tp})
        leader = await self._parts.target.leader(*tp)
        await self._producer.send(leader, {tp: state_piece(rows, clock.now_ms())})
        await self._producer.wait_for_room(0)

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._parts.target.clock.now_ms(),
            self._parts.owner,
            {tp: copy.end for tp, copy in self.copies.items()},
            {tp: copy.stopped for tp, copy in self.copies.items() if copy.stopped},
            self._parts.source.cache.cluster_id or "",
        )

    def _committed(self, records: int, sent: int) -> None:
        for copy in self.copies.values():
            copy.committed()
            if copy.stopped and copy.tp not in self.stopped:
                self.stopped[copy.tp] = copy.stopped
                log.error("%s-%d is not mirrored: %s", *copy.tp, copy.stopped)
        for wait in self._storing_waits:
            if not wait.done():
                wait.set_result(None)
        self.records += records
        self.bytes_sent += sent
        self.transactions += 1


def promoted_text(mirror_id: str) -> str:
    """What a mirror says that was promoted."""
    return (
        f"mirror {mirror_id} was promoted: its target is written by applications now. To mirror "
        "into it again see docs/mirror.md, Failback"
    )


def refusal(error: ProduceError) -> str:
    """Why a batch was refused, and the remedy."""
    remedy = "mend the topic's configs in the target"
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        remedy = (
            f"the batch has {error.size_bytes} bytes: raise max.message.bytes of the topic in the "
            "target"
        )
    elif error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        remedy = "give the mirror's principal the right to write to the topic in the target"
    return f"the target refuses a batch ({error.cause}): {remedy}, then start the mirror again"
