"""One bucket of a mirror: its partitions' batches go to the target in transactions.

The order that makes it exactly once: `init` first, which fences every older owner and ends its
transaction; only then read the positions. A transaction holds data, and, once the target has
acknowledged it, where the data came from and where it is. After any error it begins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.mirror.core.batches import Piece
from headwater.mirror.core.offset_translation import translated
from headwater.mirror.core.partition_copy import PartitionCopy
from headwater.mirror.core.selection import bucket_of
from headwater.mirror.core.state import (
    Heartbeat,
    MirrorState,
    StateRecord,
    heartbeat_record,
    positions_topic,
    transactional_id,
)
from headwater.mirror.opening import PartitionOpener, created_again
from headwater.mirror.parts import MirrorParts, PromotedError, promoted_text
from headwater.mirror.source_reader import SourceReader
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
FENCED_PAUSE_S = 3.0
PROMOTION_S = 0.5
"""A promotion that has fenced a bucket is stored after so long."""
log = logging.getLogger(__name__)


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
        self._adopted: Mapping[TopicPartition, MirroredTopic] | None = None
        """The look at both clusters that `copies` come from."""
        self._appended: list[StateRecord] = []
        self._append_waits: list[asyncio.Future[bool]] = []
        self._storing_waits: list[asyncio.Future[bool]] = []
        self._producer = TargetProducer(
            parts.target,
            transactional_id(parts.config.mirror_id, number),
            parts.config.transaction_timeout_ms,
            f"mirror-{number}",
        )
        self._opener = PartitionOpener(parts, self._producer, self._appended.extend)
        self._reader = self._new_reader()

    def _new_reader(self) -> SourceReader:
        parts, lane = self._parts, f"mirror-{self.number}"
        return SourceReader(parts.source, parts.config, self.copies, lane, self._work.set)

    @property
    def bytes_fetched(self) -> int:
        """Since the bucket began its last session."""
        return self._reader.bytes_fetched

    @property
    def is_running(self) -> bool:
        """False once `stop` was called."""
        return not self._stopping

    @property
    def era(self) -> int:
        """When the mirror in the other direction was promoted; 0 without one."""
        return self._parts.reverse.promoted_ms or 0

    def translate(self, tp: TopicPartition, offset: int) -> int | None:
        """Where a consumer at this source offset goes on in the target."""
        copy = self.copies.get(tp)
        if copy is None:
            return None
        orphans = self.state.orphans.get(tp)
        end = None if orphans is None else orphans.end
        return translated(offset, copy.stored, copy.offset_map, copy.skipped, end)

    def stop(self) -> None:
        """End `run` after the open transaction."""
        self._stopping = True
        self._work.set()

    def append(self, records: list[StateRecord]) -> asyncio.Future[bool]:
        """Store these records with the next transaction; the future tells whether it
        committed."""
        self._appended += records
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
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
                self._drop_appended()

    def _drop_appended(self) -> None:
        """What was to be stored is not."""
        self._appended.clear()
        waits, self._append_waits = [*self._append_waits, *self._storing_waits], []
        for wait in waits:
            if not wait.done():
                wait.set_result(False)

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
        pause_s = self._parts.target.backoff_s(tries)
        if code in FENCED:
            # A new owner, which the group soon tells; or a promotion; or an operator's `skip`.
            pause_s = FENCED_PAUSE_S
            self.stopped.clear()
            await self._check_promoted()
        try:
            async with asyncio.timeout(pause_s):
                while not self._stopping:
                    self._work.clear()
                    await self._work.wait()
        except TimeoutError:
            pass
        try:
            await self._parts.target.refresh({tp.topic for tp in self.copies})
        except KafkaError as failure:
            self.trouble = str(failure)

    async def _check_promoted(self) -> None:
        """Raises PromotedError if that is why the bucket was fenced."""
        await asyncio.sleep(PROMOTION_S)
        try:
            state = await read_state(self._parts.target, self._topic, [self.number])
        except (KafkaError, OSError) as error:
            self.trouble = str(error) or type(error).__name__
            return
        if state.promoted_ms is not None:
            raise PromotedError(promoted_text(self._parts.config.mirror_id))

    async def _session(self) -> None:
        """From `init` on, until `stop` or an error."""
        await self._producer.init()
        self.state = await read_state(
            self._parts.target, self._topic, [self.number], isolation=READ_UNCOMMITTED
        )
        if self.state.promoted_ms is not None:
            raise PromotedError(promoted_text(self._parts.config.mirror_id))
        self.copies.clear()
        self._adopted = None
        self._reader = self._new_reader()
        await self.adopt()
        self.trouble = ""
        while True:
            # The clusters' metadata is shared: another bucket's refresh may have moved a leader.
            self._reader.wake()
            await self._wait_for_work()
            if self._stopping:
                return
            await self.adopt()
            await self._transaction()

    async def adopt(self) -> None:
        """Begin with the partitions that are new, drop those that are mirrored no longer."""
        partitions = self._parts.partitions
        if partitions is self._adopted:
            return
        mine = {
            tp: topic
            for tp, topic in partitions.items()
            if bucket_of(tp, self._parts.buckets) == self.number
        }
        for tp, copy in self.copies.items():
            if tp in mine and mine[tp].target_id != copy.target_topic_id:
                copy.stop(created_again(tp.topic, "target"), drops_fetched=True)
        fresh = mine.keys() - self.copies.keys()
        if fresh:
            await self._parts.source.refresh({tp.topic for tp in fresh})
            await self._parts.target.refresh({tp.topic for tp in fresh})
        for tp in self.copies.keys() - mine.keys():
            del self.copies[tp]
        for tp in sorted(fresh):
            copy = await self._opener.open(tp, mine[tp], self.state)
            if tp in self.stopped:
                copy.stop(self.stopped[tp])
            self.copies[tp] = copy
        self._adopted = partitions
        self._reader.wake()

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
                if self._stopping or self._append_waits or not await self._more_before(deadline):
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
        rows = list(self._appended)
        self._appended.clear()
        self._storing_waits, self._append_waits = self._append_waits, []
        for tp, copy in self.copies.items():
            if not copy.has_data:
                copy.take()  # passes markers and aborted batches behind the last record
            if tp in chunks or (copy.has_news and copy.may_store):
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
        troubles = [
            f"{tp.topic}-{tp.partition}: {copy.trouble}"
            for tp, copy in self.copies.items()
            if copy.trouble
        ]
        return Heartbeat(
            self._parts.target.clock.now_ms(),
            self._parts.owner,
            {tp: copy.end for tp, copy in self.copies.items()},
            {tp: copy.stopped for tp, copy in self.copies.items() if copy.stopped},
            self._parts.source.cache.cluster_id or "",
            troubles + (self._parts.troubles if self.number == 0 else []),
        )

    def _committed(self, records: int, sent: int) -> None:
        for copy in self.copies.values():
            copy.committed()
            if copy.stopped and copy.tp not in self.stopped:
                self.stopped[copy.tp] = copy.stopped
                log.error("%s-%d is not mirrored: %s", *copy.tp, copy.stopped)
        for wait in self._storing_waits:
            if not wait.done():
                wait.set_result(True)
        self.records += records
        self.bytes_sent += sent
        self.transactions += 1


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
