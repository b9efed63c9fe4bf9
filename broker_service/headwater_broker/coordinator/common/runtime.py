"""Runs coordinators: command -> (records, replies); append, replay, reply when committed.

One shard per partition of an internal topic, hosted while this broker leads the partition: loaded
by replaying the log when leadership begins, dropped when it ends. Meanwhile requests get
COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR, which clients retry.

- A shard's durable state changes only by replaying records that are in the log, so what a
  successor loads is what the live path made.
- Every reply, of reads too, waits until the high watermark has passed the last record applied when
  it was decided: no client ever learns what a failover may take back.
- An append whose outcome is unknown (a disk error) drops the shard and loads it again; who waits is
  told NOT_COORDINATOR.
- A reply that waits longer than the write time-out fails; the record stays applied, because it is
  in this leader's log: it commits later, or the leadership ends and the shard with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from headwater.clock import Clock
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.records.builder import BatchBuilder
from headwater.records.pairs import Latest, fold_latest
from headwater_broker.coordinator.common.appender import Appender
from headwater_broker.coordinator.common.decision import (
    Decision,
    Now,
    Shard,
    StoredRecord,
    Token,
)

WRITE_TIMEOUT_MS = 5_000
"""Kafka: offsets.commit.timeout.ms."""
LOAD_RETRY_S = 0.5
REPLAYED_PER_TURN = 200
"""Records replayed before the loop has its turn: some 10 ms."""
BATCH_BYTES = 256 * 1024
"""Records of one decision beyond this go into a further batch."""

_UNKNOWN_OUTCOME = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})
_LEADERSHIP_LOST = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_AS_TOLD = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

S = TypeVar("S", bound=Shard)
logger = logging.getLogger(__name__)


class _Due(NamedTuple):
    """A decided reply that waits for the high watermark to pass `offset`."""

    offset: int
    deadline_ms: float
    future: asyncio.Future[object]
    reply: object


class _Hosted(Generic[S]):
    """One shard's place: loading until `is_active`."""

    __slots__ = (
        "due",
        "epoch",
        "follower",
        "is_active",
        "last_applied",
        "loader",
        "partition",
        "shard",
        "timer",
        "timer_at_ms",
        "waiting",
    )

    def __init__(self, partition: int, epoch: int, shard: S) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard = shard
        self.is_active = False
        self.last_applied = -1
        self.waiting: dict[Token, asyncio.Future[object]] = {}
        self.due: deque[_Due] = deque()
        self.loader: asyncio.Task[None] | None = None
        self.follower: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at_ms = 0.0


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic on this broker. Everything runs on its loop."""

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[int], S],
        appender: Appender,
        clock: Clock,
        *,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
    ) -> None:
        """`make_shard(partition)` gives an empty shard."""
        self.topic = topic
        self._make_shard = make_shard
        self._appender = appender
        self._clock = clock
        self._write_timeout_ms = write_timeout_ms
        self.on_loaded: Callable[[int], None] | None = None
        """Called with each partition whose shard has become ready."""
        self._hosted: dict[int, _Hosted[S]] = {}
        self._next_token = 0

    # -- leadership

    def on_leader(self, partition: int, epoch: int) -> None:
        """This broker leads `partition` in `epoch`: load its shard, unless it is here already."""
        known = self._hosted.get(partition)
        if known is not None:
            if known.epoch >= epoch:
                return
            self._drop(known, "a newer leader epoch")
        hosted = _Hosted(partition, epoch, self._make_shard(partition))
        self._hosted[partition] = hosted
        hosted.loader = asyncio.get_running_loop().create_task(self._load(hosted))

    def on_resign(self, partition: int) -> None:
        """This broker no longer leads `partition`: forget its shard."""
        hosted = self._hosted.get(partition)
        if hosted is not None:
            self._drop(hosted, "leadership ended")

    @property
    def partitions(self) -> list[int]:
        """The partitions whose shard is loaded."""
        return sorted(p for p, hosted in self._hosted.items() if hosted.is_active)

    @property
    def shards(self) -> list[S]:
        """The shards that are loaded, to be looked at only."""
        return [hosted.shard for _, hosted in sorted(self._hosted.items()) if hosted.is_active]

    def is_ready(self, partition: int) -> bool:
        """True when the shard is here and loaded."""
        hosted = self._hosted.get(partition)
        return hosted is not None and hosted.is_active

    def is_hosted(self, partition: int) -> bool:
        """True when the shard is here, loaded or loading."""
        return partition in self._hosted

    @property
    def is_loading(self) -> bool:
        """True while any shard is being loaded."""
        return any(not hosted.is_active for hosted in self._hosted.values())

    async def close(self) -> None:
        """Forget every shard."""
        tasks = [
            task
            for hosted in self._hosted.values()
            for task in (hosted.loader, hosted.follower)
            if task is not None
        ]
        for hosted in list(self._hosted.values()):
            self._drop(hosted, "the broker stops")
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- commands

    async def run(self, partition: int, command: Callable[[S, Now, Token], Decision]) -> object:
        """Run `command` and wait for the reply to its token; commands of a shard run one by one.

        Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, what the command raised,
        or what became of its append.
        """
        hosted = self._hosted.get(partition)
        if hosted is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"{self.topic}-{partition} is not led by this broker"
            )
        if not hosted.is_active:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{partition} is being loaded"
            )
        token = self._next_token = self._next_token + 1
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        hosted.waiting[token] = future
        try:
            self._perform(hosted, lambda now: command(hosted.shard, now, token), token)
            return await future
        finally:
            hosted.waiting.pop(token, None)

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.monotonic() * 1000)

    def _perform(
        self, hosted: _Hosted[S], decide: Callable[[Now], Decision], token: Token | None
    ) -> None:
        try:
            decision = decide(self._now())
        except KafkaError as refused:
            decision = Decision()
            if token is not None:
                decision.reply(token, refused)
        except Exception:
            logger.exception("%s-%d: a command failed; reloading", self.topic, hosted.partition)
            self._reload(hosted, "a command failed")
            return
        error = self._append(hosted, decision) if decision.records else None
        if not self._is_current(hosted):
            return
        if error is None:
            self._answer(hosted, decision.confirmations)
        self._answer(hosted, decision.replies)
        if error is not None and token is not None:
            self._answer(hosted, [(token, as_told(error))])
        self._release(hosted)
        self._arm(hosted)

    def _answer(self, hosted: _Hosted[S], replies: list[tuple[Token, object]]) -> None:
        deadline = self._clock.monotonic() * 1000 + self._write_timeout_ms
        for token, reply in replies:
            future = hosted.waiting.pop(token, None)
            if future is not None:
                hosted.due.append(_Due(hosted.last_applied, deadline, future, reply))

    def _append(self, hosted: _Hosted[S], decision: Decision) -> KafkaError | None:
        """Write and replay; the error when it was refused. The shard may be gone afterwards."""
        now_ms = self._clock.now_ms()
        for records in _portions(decision.records):
            builder = BatchBuilder()
            for record in records:
                builder.append(now_ms, record.key, record.value)
            batch = memoryview(builder.build())
            try:
                last = self._appender.append(hosted.partition, hosted.epoch, batch)
            except KafkaError as error:
                logger.warning("%s-%d: append refused: %s", self.topic, hosted.partition, error)
                if error.code in _UNKNOWN_OUTCOME:
                    self._reload(hosted, "an append's outcome is unknown")
                elif error.code in _LEADERSHIP_LOST:
                    self._drop(hosted, "leadership ended")
                return error
            hosted.last_applied = last
            try:
                for record in records:
                    hosted.shard.replay(record.key, record.value)
            except Exception:
                logger.exception("%s-%d: a replay failed", self.topic, hosted.partition)
                self._reload(hosted, "a replay failed")
                return None
        return None

    # -- replies

    def _release(self, hosted: _Hosted[S]) -> None:
        """Give the replies that are committed; see to it that the others come."""
        due = hosted.due
        if not due:
            return
        try:
            end = self._appender.committed_end(hosted.partition, hosted.epoch)
        except KafkaError as error:
            self._drop(hosted, str(error))
            return
        while due and due[0].offset < end:
            item = due.popleft()
            if item.future.done():
                continue
            if isinstance(item.reply, KafkaError):
                item.future.set_exception(item.reply)
            else:
                item.future.set_result(item.reply)
        if due and hosted.follower is None:
            hosted.follower = asyncio.get_running_loop().create_task(self._follow(hosted))

    async def _follow(self, hosted: _Hosted[S]) -> None:
        """Wait for the high watermark while replies wait for it."""
        due = hosted.due
        while due and self._is_current(hosted):
            head = due[0]
            left_ms = head.deadline_ms - self._clock.monotonic() * 1000
            try:
                if left_ms <= 0:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"{self.topic}-{hosted.partition}: offset {head.offset} was not "
                        f"replicated within {self._write_timeout_ms} ms",
                    )
                await self._appender.committed(
                    hosted.partition, hosted.epoch, head.offset, int(left_ms) + 1
                )
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    hosted.follower = None
                    self._drop(hosted, str(error))
                    return
                if due and due[0] is head:
                    due.popleft()
                    if not head.future.done():
                        head.future.set_exception(as_told(error))
                continue
            if self._is_current(hosted):
                self._release(hosted)
        hosted.follower = None

    # -- timers

    def _arm(self, hosted: _Hosted[S]) -> None:
        if not self._is_current(hosted) or not hosted.is_active:
            return
        at_ms = hosted.shard.next_deadline_ms()
        if hosted.timer is not None:
            if at_ms is not None and hosted.timer_at_ms <= at_ms:
                return  # it looks early enough, and arms itself again
            hosted.timer.cancel()
            hosted.timer = None
        if at_ms is not None:
            delay_s = max(at_ms / 1000 - self._clock.monotonic(), 0.0)
            hosted.timer_at_ms = at_ms
            hosted.timer = asyncio.get_running_loop().call_later(delay_s, self._tick, hosted)

    def _tick(self, hosted: _Hosted[S]) -> None:
        hosted.timer = None
        if self._is_current(hosted) and hosted.is_active:
            self._perform(hosted, hosted.shard.tick, None)

    # -- loading and dropping

    def _is_current(self, hosted: _Hosted[S]) -> bool:
        return self._hosted.get(hosted.partition) is hosted

    async def _load(self, hosted: _Hosted[S]) -> None:
        where = f"{self.topic}-{hosted.partition}"
        started = self._clock.monotonic()
        while self._is_current(hosted):
            try:
                count = await self._replay_log(hosted)
            except HeadwaterError as error:
                if isinstance(error, KafkaError) and error.code in _LEADERSHIP_LOST:
                    self._drop(hosted, str(error))
                    return
                logger.warning("%s: loading failed, trying again: %s", where, error)
            except Exception:
                logger.exception("%s: loading failed, trying again", where)
            else:
                if self._is_current(hosted):
                    hosted.loader = None
                    hosted.is_active = True
                    hosted.shard.loaded(self._now())
                    self._arm(hosted)
                    took_ms = (self._clock.monotonic() - started) * 1000
                    logger.info("%s: loaded %d records in %.0f ms", where, count, took_ms)
                    if self.on_loaded is not None:
                        self.on_loaded(hosted.partition)
                return
            await asyncio.sleep(LOAD_RETRY_S)
            hosted.shard = self._make_shard(hosted.partition)

    async def _replay_log(self, hosted: _Hosted[S]) -> int:
        """Read to the log's end, then replay the last record of each key, as compaction would
        have left it; how many records were read.
        """
        offset = count = 0
        latest: Latest = {}
        while self._is_current(hosted):
            data = await self._appender.read_from(hosted.partition, hosted.epoch, offset)
            if not data:
                break
            end, found = fold_latest(data, latest)
            if end is None:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch at offset {offset}")
            offset, count = end, count + found
            hosted.last_applied = offset - 1
            await asyncio.sleep(0)
        for number, (key, value) in enumerate(latest.items(), 1):
            if not self._is_current(hosted):
                break
            hosted.shard.replay(key, value)
            if number % REPLAYED_PER_TURN == 0:
                await asyncio.sleep(0)
        return count

    def _reload(self, hosted: _Hosted[S], reason: str) -> None:
        partition, epoch = hosted.partition, hosted.epoch
        self._drop(hosted, reason)
        self.on_leader(partition, epoch)

    def _drop(self, hosted: _Hosted[S], reason: str) -> None:
        if not self._is_current(hosted):
            return
        del self._hosted[hosted.partition]
        logger.info("%s-%d: shard dropped: %s", self.topic, hosted.partition, reason)
        if hosted.timer is not None:
            hosted.timer.cancel()
        current = asyncio.current_task()
        for task in (hosted.loader, hosted.follower):
            if task is not None and task is not current:
                task.cancel()
        error = KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{hosted.partition}: {reason}")
        futures = [*hosted.waiting.values(), *(item.future for item in hosted.due)]
        hosted.waiting.clear()
        hosted.due.clear()
        for future in futures:
            if not future.done():
                future.set_exception(error)


def _portions(records: list[StoredRecord]) -> Iterator[list[StoredRecord]]:
    """Batches of at most BATCH_BYTES, or of one record."""
    portion: list[StoredRecord] = []
    size = 0
    for record in records:
        size += len(record.key) + len(record.value or b"")
        if portion and size > BATCH_BYTES:
            yield portion
            portion, size = [], len(record.key) + len(record.value or b"")
        portion.append(record)
    if portion:
        yield portion


def as_told(error: KafkaError) -> KafkaError:
    """An append's error as clients of a coordinator are told it."""
    code = _AS_TOLD.get(error.code)
    return error if code is None else KafkaError(code, error.detail)
