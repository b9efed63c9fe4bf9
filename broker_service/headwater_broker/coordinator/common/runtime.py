"""Runs coordinators: command -> (records, replies); replay, append, reply when committed.

One shard per partition of an internal topic, hosted while this broker leads the partition: loaded
from the log when leadership begins, dropped when it ends. Meanwhile requests get
COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR, which clients retry.

- A shard's durable state changes only by replay of records, so what a successor loads from the log
  is what the live path made.
- The records of one decision are in one batch. Commands are replayed at once. The first one of a
  turn of the loop is appended at once, too; those that follow in the same turn are appended
  together at its end. No reply is given before. A command is checked against what would reject an
  append (leadership, min.insync.replicas, size) before its records are replayed; an append that is
  rejected all the same drops the shard and loads it again from the log.
- Every reply, of reads too, waits until the high watermark has passed the last record replayed when
  it was decided (`committed_replies`): no client learns what a failover may take back. A reply
  that a deposed leader must not give waits for a commit after it (`leadership_proof`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Generic

from headwater.clock import Clock
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.records.control import ControlType, build_marker
from headwater_broker.coordinator.common.appender import Appender, LoneLog
from headwater_broker.coordinator.common.client_errors import LEADERSHIP_LOST, client_error
from headwater_broker.coordinator.common.committed_replies import CommittedReplies, OnCommitted
from headwater_broker.coordinator.common.hosted_shard import HostedShard, Waiter
from headwater_broker.coordinator.common.leadership_proof import LeadershipProver
from headwater_broker.coordinator.common.loader import Load, load_shard
from headwater_broker.coordinator.common.lone_appends import LoneAppends
from headwater_broker.coordinator.common.reply import Reply
from headwater_broker.coordinator.common.shard import (
    NOBODY,
    Command,
    Decision,
    Decisions,
    Now,
    Producer,
    S,
    Token,
    each,
)
from headwater_broker.coordinator.common.shard_timers import ShardTimers
from headwater_broker.log.results import AppendOrigin
from headwater_broker.replica.partition import ACKS_ALL

WRITE_TIMEOUT_MS = 5_000
"""Kafka: offsets.commit.timeout.ms."""
LOAD_RETRY_S = 0.5

logger = logging.getLogger(__name__)


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic on this broker. All methods run on the broker's loop."""

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[int], S],
        appender: Appender,
        clock: Clock,
        *,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        on_loaded: Callable[[int], None] | None = None,
        on_committed: OnCommitted[S] | None = None,
        load: Load = load_shard,
    ) -> None:
        """`make_shard(partition)` returns an empty shard, which `load` fills; `on_loaded` is called
        with the partition of each shard that has become ready; `on_committed` with (partition,
        leader epoch, shard, high watermark) when the high watermark has passed records that the
        shard has replayed."""
        self.topic = topic
        self._make_shard = make_shard
        self._appender = appender
        self._clock = clock
        self._on_loaded = on_loaded
        self._load_shard = load
        self._hosted: dict[int, HostedShard[S]] = {}
        self._replies: CommittedReplies[S] = CommittedReplies(
            appender, clock, write_timeout_ms, on_committed, self._is_current, self._drop,
            self._reload,
        )  # fmt: skip
        self._prover: LeadershipProver[S] = LeadershipProver(
            appender, clock, self._replies.answer, self._replies.release, self._drop
        )
        self._timers: ShardTimers[S] = ShardTimers(clock, self._is_current, self._tick)
        self._lone: LoneAppends[S] = LoneAppends(self._committed, self._append_failed, self._reload)
        self._in_turn: list[HostedShard[S]] = []
        """Shards with a command of this turn of the loop; one handle ends the turn for all."""

    # -- leadership

    def on_leader(self, partition: int, epoch: int) -> None:
        """This broker leads `partition` in `epoch`: load its shard, unless it is here already."""
        known = self._hosted.get(partition)
        if known is not None:
            if known.epoch >= epoch:
                return
            self._drop(known, "a newer leader epoch")
        hosted = HostedShard(self.topic, partition, epoch, self._make_shard(partition))
        self._hosted[partition] = hosted
        hosted.loader = asyncio.get_running_loop().create_task(self._load(hosted))

    def on_resign(self, partition: int) -> None:
        """This broker no longer leads `partition`: drop its shard."""
        hosted = self._hosted.get(partition)
        if hosted is not None:
            self._drop(hosted, "leadership ended")

    @property
    def partitions(self) -> list[int]:
        """The partitions whose shard is loaded."""
        return sorted(p for p, hosted in self._hosted.items() if hosted.is_active)

    @property
    def shards(self) -> list[S]:
        """The loaded shards; to be read only."""
        return [hosted.shard for _, hosted in sorted(self._hosted.items()) if hosted.is_active]

    def shard(self, partition: int) -> S:
        """The loaded shard, whose durable state is to be read only. Raises NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS."""
        return self._ready(partition).shard

    def lone_shard(self, partition: int) -> S | None:
        """The shard, to be read only, if all that it has replayed is committed and no other broker
        has a replica; None: `run` a command."""
        hosted = self._hosted.get(partition)
        if hosted is None or not hosted.is_active or hosted.due or not hosted.turn.is_empty:
            return None
        return hosted.shard if self._appender.lone_log(partition, hosted.epoch) else None

    def is_ready(self, partition: int) -> bool:
        """True when the shard is here and loaded."""
        hosted = self._hosted.get(partition)
        return hosted is not None and hosted.is_active

    def is_hosted(self, partition: int) -> bool:
        """True when the shard is here, loaded or loading."""
        return partition in self._hosted

    def is_current(self, partition: int, shard: S) -> bool:
        """True while this very shard is hosted: not dropped, not loaded again."""
        hosted = self._hosted.get(partition)
        return hosted is not None and hosted.shard is shard

    def leader_epoch(self, partition: int) -> int | None:
        """The leader epoch that the shard is hosted in; None: it is not here."""
        hosted = self._hosted.get(partition)
        return None if hosted is None else hosted.epoch

    def fenced(self, partition: int, epoch: int) -> None:
        """Another broker leads `partition` in a newer epoch than `epoch`: drop the shard."""
        hosted = self._hosted.get(partition)
        if hosted is not None and hosted.epoch <= epoch:
            self._drop(hosted, "fenced by the coordinator of a newer leader epoch")

    @property
    def is_loading(self) -> bool:
        """True while any shard loads."""
        return any(not hosted.is_active for hosted in self._hosted.values())

    async def close(self) -> None:
        """Drop every shard."""
        tasks = [task for hosted in self._hosted.values() for task in hosted.tasks]
        for hosted in list(self._hosted.values()):
            self._drop(hosted, "the broker stops")
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- commands

    async def run(self, partition: int, command: Command[S]) -> object:
        """Run `command` and wait for the reply to its token; commands of a shard run one by one.

        Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, what the command raised,
        or the error of its append."""
        reply = Reply()
        self.begin(partition, command, reply)
        return await reply.wait()

    def start(self, partition: int, command: Command[S]) -> asyncio.Future[object]:
        """Run `command`; the reply to come. Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        The token of a caller that gives up waits on: the shard answers it in the end."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.begin(partition, command, future)
        return future

    def begin(self, partition: int, command: Command[S], waiter: Waiter) -> None:
        """`start`, with the reply to `waiter`, who must not run commands within its call."""
        hosted = self._ready(partition)
        token = hosted.expect(waiter)
        self._perform(hosted, lambda now: command(hosted.shard, now, token), token)

    def at_once(self, partition: int, command: Command[S]) -> object | None:
        """Run a command with the token NOBODY, and return the reply that it confirms, which is not
        None, with its records committed: where this broker has the only replica, and nothing waits.
        None: they are not certain to be in the log, and `run` decides."""
        if self.lone_shard(partition) is None:
            return None
        hosted = self._hosted[partition]
        now = self._now()
        decisions = self._decide(hosted, lambda at: command(hosted.shard, at, NOBODY), None, now)
        if decisions is None or len(decisions) != 1:
            return None
        (decided,) = decisions
        if decided.replies or len(decided.confirmations) != 1:
            return None
        if not self._is_appended_alone(hosted, decided, now) or not self._is_current(hosted):
            return None
        return decided.confirmations[0][1]

    def note(self, partition: int, work: Callable[[S, Now], bool]) -> bool:
        """Let a shard take in what needs no record and no reply. Raises as `start`."""
        is_taken = work((hosted := self._ready(partition)).shard, self._now())
        self._timers.arm(hosted)
        return is_taken

    async def end_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
    ) -> None:
        """Append a transaction marker and replay it; return when it is committed (KIP-98).

        Raises KafkaError as `run`, and what the log rejects a marker with.
        """
        hosted = self._ready(partition)
        lone, known_epoch = None, self._appender.coordinator_epoch(partition, producer_id)
        if not hosted.due and hosted.turn.is_empty and known_epoch <= coordinator_epoch:
            producer = Producer(producer_id, producer_epoch)
            lone = self._appender.lone_log(partition, hosted.epoch, producer)
        if lone is not None:
            self._append_marker(
                hosted, producer_id, producer_epoch, coordinator_epoch, commit, lone
            )
            if not self._is_current(hosted):
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{hosted.name} is loaded again")
            self._committed(hosted, hosted.last_replayed + 1)
            return
        reply = Reply()
        token = hosted.expect(reply)
        try:
            self._append(hosted)
            if self._is_current(hosted):
                self._append_marker(hosted, producer_id, producer_epoch, coordinator_epoch, commit)
            if self._is_current(hosted):
                self._replies.answer(hosted, [(token, None)])
                self._replies.release(hosted)
                self._timers.arm(hosted)
            await reply.wait()
        except KafkaError:
            self._replies.release(hosted)  # those of records that went before the failed marker
            raise
        finally:
            hosted.waiting.pop(token, None)

    def _ready(self, partition: int) -> HostedShard[S]:
        hosted = self._hosted.get(partition)
        if hosted is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"{self.topic}-{partition} is not led by this broker"
            )
        if not hosted.is_active:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{partition} is being loaded"
            )
        return hosted

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.monotonic() * 1000)

    def _perform(
        self,
        hosted: HostedShard[S],
        decide: Callable[[Now], Decisions],
        token: Token | None,
    ) -> None:
        now = self._now()
        decisions = self._decide(hosted, decide, token, now)
        if decisions is None or (
            len(decisions) == 1 and self._is_appended_alone(hosted, decisions[0], now)
        ):
            return
        is_first = not hosted.is_in_turn
        for decision in decisions:
            rejected = self._replay(hosted, decision) if decision.records else None
            if not self._is_current(hosted):
                return
            if rejected is None and decision.confirmations:
                self._replies.answer(hosted, decision.confirmations)
            if decision.replies:
                self._replies.answer(hosted, decision.replies)
            if rejected is not None:
                if token is not None:
                    self._replies.answer(hosted, [(token, client_error(rejected))])
                break
            if decision.leader_replies:
                self._prover.add(hosted, decision.leader_replies)
        if is_first:
            self._append(hosted)
        if self._is_current(hosted):
            self._replies.release(hosted)
            self._timers.arm(hosted)

    def _decide(
        self,
        hosted: HostedShard[S],
        decide: Callable[[Now], Decisions],
        token: Token | None,
        now: Now,
    ) -> Sequence[Decision] | None:
        """None: an unforeseen error has reloaded the shard."""
        try:
            return each(decide(now))
        except KafkaError as error:
            return () if token is None else (Decision().reply(token, error),)
        except Exception:
            logger.exception("%s: a command failed; reloading", hosted.name)
            self._reload(hosted, "a command failed")
            return None

    def _is_appended_alone(self, hosted: HostedShard[S], decided: Decision, now: Now) -> bool:
        """True once the decision is appended and committed: this broker has the only replica."""
        if not decided.records or decided.leader_replies or hosted.due or not hosted.turn.is_empty:
            return False
        log = self._appender.lone_log(hosted.partition, hosted.epoch, decided.producer)
        return log is not None and self._lone.perform(hosted, log, decided, now.wall_ms)

    def _committed(self, hosted: HostedShard[S], end: int) -> None:
        self._replies.committed(hosted, end)
        self._timers.arm(hosted)

    # -- append

    def _replay(self, hosted: HostedShard[S], decision: Decision) -> KafkaError | None:
        """Put the records into this turn's batches, replay them; the error if they are rejected."""
        try:
            state = self._appender.check_append(hosted.partition, hosted.epoch, decision.producer)
            first = hosted.turn.add(decision, state, self._clock.now_ms())
        except KafkaError as error:
            logger.warning("%s: append rejected: %s", hosted.name, error)
            if error.code in LEADERSHIP_LOST:
                self._drop(hosted, "leadership ended")
            return error
        producer_id, producer_epoch = decision.producer or (-1, -1)
        try:
            for offset, record in enumerate(decision.records, first):
                hosted.shard.replay(offset, producer_id, producer_epoch, record.key, record.value)
        except Exception:
            logger.exception("%s: a replay failed", hosted.name)
            self._reload(hosted, "a replay failed")
            return None
        hosted.last_replayed = first + len(decision.records) - 1
        if not hosted.is_in_turn:  # before any fetch of a follower that the append completes
            hosted.is_in_turn = True
            if not self._in_turn:
                asyncio.get_running_loop().call_soon(self._end_turn)
            self._in_turn.append(hosted)
        return None

    def _end_turn(self) -> None:
        ended, self._in_turn = self._in_turn, []
        for hosted in ended:
            hosted.is_in_turn = False
            if hosted.turn.is_empty or not self._is_current(hosted):
                continue
            try:
                self._append(hosted)
                self._replies.release(hosted)
            except Exception:  # the other shards' turns end, too
                logger.exception("%s: an append failed; reloading", hosted.name)
                self._reload(hosted, "an append failed")

    def _append(self, hosted: HostedShard[S]) -> None:
        """Append what is replayed and not appended yet."""
        if hosted.turn.is_empty:
            return
        expected, batches = hosted.turn.take()
        try:
            first = self._appender.append(hosted.partition, hosted.epoch, memoryview(batches))
        except KafkaError as error:
            self._append_failed(hosted, error, expected)
            return
        if first != expected:
            logger.error(
                "%s: appended at offset %d, not at %d: another writer is at work; reloading",
                hosted.name, first, expected,
            )  # fmt: skip
            self._reload(hosted, "another writer appended")

    def _append_marker(
        self, hosted: HostedShard[S], pid: int, epoch: int, coordinator_epoch: int, commit: bool,
        lone: LoneLog | None = None,
    ) -> None:  # fmt: skip
        """Raises the KafkaError of the append when the shard is as it was before."""
        now_ms = self._clock.now_ms()
        marker = build_marker(
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=pid,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        try:
            if lone is not None:
                view, origin = memoryview(marker), AppendOrigin.MARKERS
                at = lone.append(view, ACKS_ALL, now_ms, origin).base_offset
            else:
                at = self._appender.append(hosted.partition, hosted.epoch, memoryview(marker))
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR or error.code in LEADERSHIP_LOST:
                self._append_failed(hosted, error, hosted.last_replayed + 1)
                return
            raise KafkaError(client_error(error).code, error.detail) from error
        try:
            hosted.shard.replay_end_transaction(pid, epoch, commit=commit)
        except Exception:
            logger.exception("%s: the replay of a marker failed", hosted.name)
            self._reload(hosted, "a replay failed")
            return
        hosted.last_replayed = at

    def _append_failed(self, hosted: HostedShard[S], error: KafkaError, first_offset: int) -> None:
        """The shard has replayed records that are not in the log, or perhaps are: load it again."""
        logger.warning("%s: append failed: %s", hosted.name, error)
        hosted.fail_from(first_offset, client_error(error))
        if error.code in LEADERSHIP_LOST:
            self._drop(hosted, "leadership ended")
        else:
            self._reload(hosted, "an append failed")

    def _tick(self, hosted: HostedShard[S]) -> None:
        if self._is_current(hosted) and hosted.is_active:
            self._perform(hosted, hosted.shard.tick, None)

    # -- loading and dropping

    def _is_current(self, hosted: HostedShard[S]) -> bool:
        return self._hosted.get(hosted.partition) is hosted

    async def _load(self, hosted: HostedShard[S]) -> None:
        started = self._clock.monotonic()
        while self._is_current(hosted):
            try:
                loaded = await self._load_shard(
                    hosted.shard,
                    self._appender,
                    hosted.partition,
                    hosted.epoch,
                    lambda: self._is_current(hosted),
                )
            except HeadwaterError as error:
                if isinstance(error, KafkaError) and error.code in LEADERSHIP_LOST:
                    self._drop(hosted, str(error))
                    return
                logger.warning("%s: loading failed, trying again: %s", hosted.name, error)
            except Exception:
                logger.exception("%s: loading failed, trying again", hosted.name)
            else:
                if loaded is not None:
                    hosted.last_replayed = loaded.end_offset - 1
                    self._activate(hosted, loaded.records, started)
                return
            await asyncio.sleep(LOAD_RETRY_S)
            hosted.shard = self._make_shard(hosted.partition)

    def _activate(self, hosted: HostedShard[S], records: int, started: float) -> None:
        hosted.loader = None
        hosted.is_active = True
        hosted.shard.loaded(self._now())
        self._timers.arm(hosted)
        self._replies.release(hosted)
        took_ms = (self._clock.monotonic() - started) * 1000
        logger.info("%s: loaded %d records in %.0f ms", hosted.name, records, took_ms)
        if self._on_loaded is not None:
            self._on_loaded(hosted.partition)

    def _reload(self, hosted: HostedShard[S], reason: str) -> None:
        self._drop(hosted, reason)
        self.on_leader(hosted.partition, hosted.epoch)

    def _drop(self, hosted: HostedShard[S], reason: str) -> None:
        if not self._is_current(hosted):
            return
        del self._hosted[hosted.partition]
        logger.info("%s: shard dropped: %s", hosted.name, reason)
        hosted.cancel()
        hosted.refuse(KafkaError(ErrorCode.NOT_COORDINATOR, f"{hosted.name}: {reason}"))
