"""Requests about epochs, as Spark's drivers and tasks send them: repeated until they have a status.

Clients share no code with `headwater.client`; each answer is checked against the ledger.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from headwater.errors import ErrorCode
from headwater.records.builder import BatchBuilder
from headwater.wire.apis import k00_produce as k00
from headwater.wire.apis import k10000_allocate_epoch_ticket as k10000
from headwater.wire.apis import k10001_join_epoch as k10001
from headwater.wire.apis import k10002_commit_epoch as k10002
from headwater.wire.apis import k10003_abort_epoch as k10003
from headwater.wire.apis import k10004_prepare_epoch as k10004
from headwater.wire.apis import k10005_epoch_heartbeat as k10005
from headwater.wire.epoch_values import EpochStatus
from headwater.wire.schema import Message
from sim.clients import LOST, PRODUCE_TIMEOUT_MS, RETRIED
from sim.epoch_ledger import EpochAttempt, EpochFate
from sim.invariants import ViolationError
from sim.ledger import Acked, Key
from sim.plan import EPOCH_MAX_MS, EPOCH_TIMEOUT_MS
from sim.transaction_clients import MOVED, TRANSACTION, CoordinatorClient, GaveUpError

if TYPE_CHECKING:
    from sim.world import World

R = TypeVar("R", bound=Message)

TICKETS = "__hw"
CLOCK_SLACK = 0.8
"""A coordinator's timer may be this much earlier than the client's."""
PRODUCE_VERSION = 12
GONE = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""What a leader answers a participant whose epoch is over."""


class TaskFailedError(Exception):
    """A task cannot write: its epoch is over."""


class Joined(NamedTuple):
    """A participant: what the coordinator gave to a task."""

    prefix: str
    task: int
    slot: int
    producer_id: int
    producer_epoch: int
    transactional_id: str

    def row(self) -> k10002.EpochParticipant:
        """As a commit names it."""
        return k10002.EpochParticipant(
            task=self.task,
            slot=self.slot,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )


class Answer(NamedTuple, Generic[R]):
    """A final answer."""

    reply: R
    in_vain: int
    """How often the request was sent without one."""
    sent_s: float
    """When the request was sent that got it."""


class EpochRequests(CoordinatorClient):
    """A process of Spark: a driver or a task."""

    def __init__(self, world: World, name: str, owner: str) -> None:
        super().__init__(world, name)
        self.ledger = world.epochs
        self.owner = owner

    # -- coordinators

    async def to_coordinator(self, key: str, request: Message, reply: type[R]) -> Answer[R]:
        """Send a request until its answer is final; BUSY is none. Raises GaveUpError,
        ViolationError."""
        in_vain, found_by = 0, (TRANSACTION, key)
        while True:
            if self.world.has_given_up:
                raise GaveUpError
            host = self._coordinators.get(found_by) or await self.find_coordinator(found_by)
            if host is not None:
                sent_s = self.world.scheduler.now
                try:
                    found: Any = await self.ask(host, request, reply, 0)
                except LOST:
                    self._coordinators.pop(found_by, None)
                    in_vain += 1
                else:
                    code = ErrorCode(found.error_code)
                    if code is ErrorCode.NONE:
                        if getattr(found, "status", None) != EpochStatus.BUSY:
                            return Answer(found, in_vain, sent_s)
                        self.world.transactions.count("epoch busy")
                    elif not (code.retriable or code in RETRIED):
                        raise ViolationError("NothingUnforeseen", f"{self.name}: {request} {code}")
                    else:
                        in_vain += 1
                    if code in MOVED:
                        self._coordinators.pop(found_by, None)
            await self.pause()

    # -- requests

    async def allocate(self) -> int:
        """A ticket."""
        answer = await self.to_coordinator(
            TICKETS, k10000.AllocateEpochTicketRequest(), k10000.AllocateEpochTicketResponse
        )
        ticket = answer.reply.ticket
        earlier = [known for known, at_s in self.ledger.tickets if at_s <= answer.sent_s]
        if earlier and ticket <= max(earlier):
            raise ViolationError("TicketsRise", f"{self.name}: {ticket} after {max(earlier)}")
        self.ledger.tickets.append((ticket, self.world.scheduler.now))
        return ticket

    async def join(self, attempt: EpochAttempt, task: int, number: int) -> Joined | EpochStatus:
        """Join as a task's attempt; the participant, or the status that refuses it."""
        sent_s = self.world.scheduler.now
        answer = await self._about(
            attempt,
            k10001.JoinEpochRequest(**self._named(attempt), task=task, attempt=number, kind=0),
            k10001.JoinEpochResponse,
        )
        reply, status = answer.reply, EpochStatus(answer.reply.status)
        if status is EpochStatus.CHECKPOINT_MISMATCH:
            self._check_rewound(attempt)
            return status
        if status is EpochStatus.PREPARED:
            if attempt.commit_sent_s is None:  # a run looks for earlier ones before its tasks do
                self.fail("NothingUnforeseen", attempt, "another attempt is prepared")
            return status
        if status is EpochStatus.COMMITTED:
            self._told_committed(attempt)
            return status
        if status is not EpochStatus.OPEN:
            self.check_over(attempt, status, "JoinEpoch")
            return status
        last = self._committed_before(attempt.sink, sent_s)
        if attempt.epoch <= last:
            self.fail("RewoundCheckpointsAreRefused", attempt, f"it joined after {last}")
        made = Joined(
            "/".join(map(str, (*attempt.name, f"{task}.{number}"))),
            task,
            reply.slot,
            reply.producer_id,
            reply.producer_epoch,
            reply.transactional_id,
        )
        producer = (reply.producer_id, reply.producer_epoch)
        known = self.ledger.producers.setdefault(producer, made.prefix)
        if known != made.prefix:
            self.fail("SlotsAreNotShared", attempt, f"{producer} is {known}'s and {made.prefix}'s")
        attempt.last_sign_s = max(attempt.last_sign_s, answer.sent_s)
        row = (attempt.run, attempt.ticket, self.world.scheduler.now)
        self.ledger.opened.setdefault(attempt.sink, []).append(row)
        attempt.records.setdefault(made.prefix, [])
        return made

    async def commit(
        self, attempt: EpochAttempt, participants: Collection[Joined], *, prepares: bool = False
    ) -> EpochStatus:
        """CommitEpoch or PrepareEpoch: COMMITTED or PREPARED, ABORTED, FENCED."""
        attempt.named = frozenset(joined.prefix for joined in participants)
        attempt.commit_sent_s = self.world.scheduler.now
        attempt.fate = EpochFate.UNKNOWN
        rows = tuple(joined.row() for joined in participants)
        named = self._named(attempt)
        if prepares:
            preparing = k10004.PrepareEpochRequest(**named, kind=0, participants=rows)
            prepared = await self._about(attempt, preparing, k10004.PrepareEpochResponse)
            return self._outcome(attempt, prepared.reply.status, prepared.in_vain)
        request = k10002.CommitEpochRequest(**named, kind=0, is_prepared=False, participants=rows)
        answer = await self._about(attempt, request, k10002.CommitEpochResponse)
        return self._outcome(attempt, answer.reply.status, answer.in_vain)

    async def commit_prepared(self, attempt: EpochAttempt) -> EpochStatus:
        """CommitEpoch of what was prepared, perhaps by an earlier run."""
        request = k10002.CommitEpochRequest(
            **self._named(attempt), kind=0, is_prepared=True, participants=()
        )
        answer = await self._about(attempt, request, k10002.CommitEpochResponse)
        status = EpochStatus(answer.reply.status)
        if status is EpochStatus.COMMITTED:
            self._told_committed(attempt)
        elif status is EpochStatus.CHECKPOINT_MISMATCH:
            self._check_rewound(attempt)
        else:
            self.check_over(attempt, status, "CommitEpoch of a prepared one")
        return status

    async def abort(self, attempt: EpochAttempt, *, is_prepared: bool = False) -> EpochStatus:
        """AbortEpoch."""
        attempt.is_abort_sent = True
        request = k10003.AbortEpochRequest(**self._named(attempt), kind=0, is_prepared=is_prepared)
        answer = await self._about(attempt, request, k10003.AbortEpochResponse)
        status = EpochStatus(answer.reply.status)
        if status is EpochStatus.COMMITTED:
            self._told_committed(attempt)
        elif status is EpochStatus.FENCED:
            self.check_over(attempt, status, "AbortEpoch")
        elif status is EpochStatus.ABORTED and not is_prepared:
            attempt.fate = EpochFate.ABORTED
        return status

    async def heartbeat(self, attempt: EpochAttempt) -> EpochStatus:
        """EpochHeartbeat."""
        request = k10005.EpochHeartbeatRequest(**self._named(attempt))
        answer = await self._about(attempt, request, k10005.EpochHeartbeatResponse)
        status = EpochStatus(answer.reply.status)
        if status is EpochStatus.OPEN:
            attempt.last_sign_s = max(attempt.last_sign_s, answer.sent_s)
        elif status not in (EpochStatus.COMMITTED, EpochStatus.PREPARED):
            self.check_over(attempt, status, "EpochHeartbeat")
        return status

    async def _about(self, attempt: EpochAttempt, request: Message, reply: type[R]) -> Answer[R]:
        self.ledger.asks(attempt)
        return await self.to_coordinator(f"{TICKETS}.{attempt.sink}", request, reply)

    def _named(self, attempt: EpochAttempt) -> dict[str, Any]:
        return {
            "sink": attempt.sink,
            "owner": self.owner,
            "run": attempt.run,
            "ticket": attempt.ticket,
            "epoch": attempt.epoch,
        }

    # -- what answers mean

    def _outcome(self, attempt: EpochAttempt, status: int, in_vain: int) -> EpochStatus:
        """The outcome of a request to commit."""
        found = EpochStatus(status)
        if found is EpochStatus.COMMITTED:
            self._told_committed(attempt)
            attempt.fate = EpochFate.DECIDED
        elif found is EpochStatus.PREPARED:
            attempt.fate = EpochFate.DECIDED
        else:
            if found is EpochStatus.CHECKPOINT_MISMATCH:  # another run has gone on meanwhile
                self._check_rewound(attempt)
            else:
                self.check_over(attempt, found, "CommitEpoch")
            if found is EpochStatus.ABORTED or not in_vain:
                attempt.fate = EpochFate.ABORTED
        return found

    def _told_committed(self, attempt: EpochAttempt) -> None:
        """A request was answered COMMITTED: somebody has asked for that."""
        if not self._may_be_committed(attempt.sink, attempt.epoch, attempt.epoch):
            self.fail("EpochsAreWholeAndOnce", attempt, "COMMITTED, and nobody asked for it")
        name = attempt.name[:2]
        if name not in self.ledger.committed:
            self.ledger.committed.add(name)
            self.ledger.committed_s[name] = self.world.scheduler.now

    def _check_rewound(self, attempt: EpochAttempt) -> None:
        if not self._may_be_committed(attempt.sink, attempt.epoch + 1):
            self.fail("RewoundCheckpointsAreRefused", attempt, "no later epoch is committed")

    def _may_be_committed(self, sink: str, least: int, most: int | None = None) -> bool:
        return any(
            a.sink == sink
            and a.epoch >= least
            and (most is None or a.epoch <= most)
            and a.fate in (EpochFate.UNKNOWN, EpochFate.DECIDED)
            for a in self.ledger.attempts.values()
        )

    def _committed_before(self, sink: str, at_s: float) -> int:
        known = self.ledger.committed_s
        return max((n[1] for n, when in known.items() if n[0] == sink and when < at_s), default=-1)

    def check_over(self, attempt: EpochAttempt, status: EpochStatus, request: str) -> None:
        """Raises ViolationError if nothing can have ended the attempt."""
        ledger = self.ledger
        if status is EpochStatus.FENCED:
            if not ledger.may_be_fenced(attempt) and not ledger.may_be_overtaken(attempt):
                self.fail("NobodyIsFencedWithoutReason", attempt, request)
        elif status is EpochStatus.ABORTED:
            if not self.may_be_aborted(attempt):
                self.fail("EpochsAbortForAReason", attempt, request)
        else:
            self.fail("NothingUnforeseen", attempt, f"{request} got {status.name}")

    def may_be_aborted(self, attempt: EpochAttempt) -> bool:
        """True when the attempt may be aborted: somebody asked for it, or nobody gave a sign."""
        now_s = self.world.scheduler.now
        silent_ms = (now_s - attempt.last_sign_s) * 1000
        open_ms = (now_s - attempt.began_s) * 1000
        return (
            attempt.is_abort_sent
            or self.ledger.may_be_overtaken(attempt)
            or self.ledger.may_be_fenced(attempt)
            or silent_ms >= EPOCH_TIMEOUT_MS * CLOCK_SLACK
            or open_ms >= EPOCH_MAX_MS * CLOCK_SLACK
            or "clock" in self.world.plan.faults
        )

    def fail(self, name: str, attempt: EpochAttempt, text: str) -> None:
        """Raise ViolationError."""
        raise ViolationError(name, f"{self.name}: {attempt}: {text}")

    # -- records

    async def write(
        self, attempt: EpochAttempt, joined: Joined, key: Key, values: tuple[bytes, ...], at: int
    ) -> None:
        """Produce one batch with this sequence until it is acked. Raises TaskFailedError."""
        attempt.records[joined.prefix] += [(key, value) for value in values]
        builder = BatchBuilder()
        for value in values:
            builder.append(self.world.now_ms, None, value)
        batch = builder.build(
            producer_id=joined.producer_id,
            producer_epoch=joined.producer_epoch,
            base_sequence=at,
            transactional=True,
        )
        data = k00.PartitionProduceData(index=key[1], records=bytes(batch))
        request = k00.ProduceRequest(
            transactional_id=joined.transactional_id,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=(k00.TopicProduceData(name=key[0], partition_data=(data,)),),
        )
        host: str | None = None
        while True:
            if self.world.has_given_up:
                raise GaveUpError
            host = host or await self.leader(*key)
            if host is not None:
                try:
                    reply = await self.ask(host, request, k00.ProduceResponse, PRODUCE_VERSION)
                except LOST:
                    host = None
                else:
                    row = reply.responses[0].partition_responses[0]
                    code = ErrorCode(row.error_code)
                    if code is ErrorCode.NONE:
                        self.world.acked(*key, Acked(row.base_offset, values, self.name))
                        return
                    if code in GONE:
                        if attempt.fate is EpochFate.OPEN:
                            self.check_over(attempt, EpochStatus.ABORTED, f"Produce: {code.name}")
                        raise TaskFailedError
                    if not (code.retriable or code in RETRIED):
                        self.fail("NothingUnforeseen", attempt, f"Produce: {code.name}")
                    if code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                        host = None
            await self.pause()
