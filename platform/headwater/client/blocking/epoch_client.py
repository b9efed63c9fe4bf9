"""Epoch transactions (docs/epochs.md) over blocking sockets: for Spark's tasks and drivers.

    writer = EpochWriter("flights-sink", query_id, run_id, client.allocate_ticket(), epoch=7)
    me = client.join(writer, task=0, attempt=12)        # in a task
    ...produce with me.producer_id, me.producer_epoch, me.transactional_id...
    client.commit(writer, participants)                 # in the driver

It needs no asyncio, no threads and no pyspark. Every call waits through the coordinator's moves and
its BUSY until `retry_timeout_s` is over; each may be repeated. One thread at a time may use a
client, and it cannot be pickled: open it in the task. `EpochWriter` and `Participant` can be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from headwater.client.blocking.cluster import BlockingCluster
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.blocking.coordinator import (
    CoordinatorClient,
    Outcome,
    OutcomeUnknownError,
)
from headwater.client.epoch_errors import (
    CheckpointMismatchError,
    EpochAbortedError,
    EpochError,
    EpochOutcomeUnknownError,
    EpochPreparedError,
    EpochsUnsupportedError,
    SinkFencedError,
    SinkOwnedError,
    WriteOutcomeUnknownError,
    epoch_error,
    refusal,
)
from headwater.client.errors import kafka_error
from headwater.client.sink_values import EpochWriter, SinkDescription, sink_description
from headwater.clock import Clock
from headwater.errors import ErrorCode
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.system import SystemClock
from headwater.wire.apis.k10000_allocate_epoch_ticket import (
    AllocateEpochTicketRequest,
    AllocateEpochTicketResponse,
)
from headwater.wire.apis.k10001_join_epoch import (
    JoinEpochRequest,
    JoinEpochResponse,
    JoinEpochTopic,
)
from headwater.wire.apis.k10002_commit_epoch import (
    CommitEpochRequest,
    CommitEpochResponse,
    EpochParticipant,
)
from headwater.wire.apis.k10003_abort_epoch import AbortEpochRequest, AbortEpochResponse
from headwater.wire.apis.k10004_prepare_epoch import PrepareEpochRequest, PrepareEpochResponse
from headwater.wire.apis.k10005_epoch_heartbeat import (
    EpochHeartbeatRequest,
    EpochHeartbeatResponse,
)
from headwater.wire.apis.k10006_describe_sinks import DescribeSinksRequest, DescribeSinksResponse
from headwater.wire.epoch_values import EpochStatus, SinkKind
from headwater.wire.schema import Message
from headwater.wire.sink_names import TICKETS_KEY, sink_key

__all__ = [
    "CheckpointMismatchError",
    "EpochAbortedError",
    "EpochClient",
    "EpochError",
    "EpochOutcomeUnknownError",
    "EpochPreparedError",
    "EpochWriter",
    "EpochsUnsupportedError",
    "WriteOutcomeUnknownError",
    "Participant",
    "SinkFencedError",
    "SinkOwnedError",
]

REQUEST_TIMEOUT_S = 30.0
RETRY_TIMEOUT_S = 60.0

R = TypeVar("R", bound=Message)
EpochResponse = (
    JoinEpochResponse
    | CommitEpochResponse
    | AbortEpochResponse
    | PrepareEpochResponse
    | EpochHeartbeatResponse
)
E = TypeVar(
    "E",
    JoinEpochResponse,
    CommitEpochResponse,
    AbortEpochResponse,
    PrepareEpochResponse,
    EpochHeartbeatResponse,
)


@dataclass(frozen=True, slots=True)
class Participant:
    """A task's part of an epoch: it produces with this producer id, epoch and transactional id."""

    task: int
    slot: int
    producer_id: int
    producer_epoch: int
    transactional_id: str
    heartbeat_interval_s: float
    """Some task of the epoch calls `heartbeat` at least this often, or the epoch is aborted."""


class EpochClient:
    """Joins, commits, prepares and aborts epochs at the coordinators of their sinks."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "headwater-epochs",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        credentials: Credentials = NO_CREDENTIALS,
        clock: Clock | None = None,
        connect: Callable[..., BlockingConnection] = BlockingConnection,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`clock`, `connect` and `sleep` are for tests."""
        self._cluster = BlockingCluster(
            bootstrap_servers,
            clock or SystemClock(),
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            retry_timeout_s=retry_timeout_s,
            credentials=credentials,
            connect=connect,
            sleep=sleep,
        )
        self._coordinators = CoordinatorClient(self._cluster)

    def __enter__(self) -> EpochClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._cluster.close()

    def allocate_ticket(self) -> int:
        """A ticket higher than every one before it, in the whole cluster."""
        reply = self._coordinators.call(
            TICKETS_KEY, AllocateEpochTicketRequest(), AllocateEpochTicketResponse, _check_code
        )
        return reply.ticket

    def join(
        self,
        writer: EpochWriter,
        *,
        task: int,
        attempt: int,
        topics: Mapping[str, Sequence[int]] | None = None,
    ) -> Participant | None:
        """Become a participant; the same attempt gets the same one again. `topics`: partitions to
        enlist at once.

        None: the epoch is committed, drain the input and write nothing. Raises the EpochError of
        every other status.
        """
        request = JoinEpochRequest(
            **writer.fields(),
            task=task,
            attempt=attempt,
            kind=writer.kind,
            topics=tuple(
                JoinEpochTopic(name=name, partitions=tuple(partitions))
                for name, partitions in (topics or {}).items()
            ),
        )
        reply = self._ask(writer, request, JoinEpochResponse)
        status = EpochStatus(reply.status)
        if status == EpochStatus.COMMITTED:
            return None
        if status != EpochStatus.OPEN:
            raise _refusal(writer, status, reply)
        return Participant(
            task=task,
            slot=reply.slot,
            producer_id=reply.producer_id,
            producer_epoch=reply.producer_epoch,
            transactional_id=reply.transactional_id,
            heartbeat_interval_s=reply.heartbeat_interval_ms / 1000,
        )

    def commit(
        self, writer: EpochWriter, participants: Sequence[Participant], *, is_prepared: bool = False
    ) -> bool:
        """Commit the epoch: of all that joined, these participants count, the others are aborted.

        `is_prepared`: commit what `prepare` made durable, in this run or an earlier one; then
        without participants. True: complete, so a reader that starts now sees the epoch whole;
        False: committed, but some partitions still wait for their markers.

        Raises an error only when the epoch is not committed, or another run has committed it and
        gone on to the next one (CheckpointMismatchError, SinkFencedError), or when its outcome is
        unknown: a request may have been served, and no broker tells. Then it depends on who may ask
        again:

        - The epoch of a query: EpochOutcomeUnknownError after `retry_timeout_s`. The query's next
          start writes the same epoch and learns the outcome before it writes a row.
        - A batch write: it is repeated without a time limit, as nobody asks again. A write that
          failed and was committed all the same would be written twice. WriteOutcomeUnknownError
          only if the brokers refuse to tell the outcome.
        - A prepared epoch: KafkaTimeoutError after `retry_timeout_s`. Whoever prepared it has its
          decision elsewhere, and commits it again in any later run.
        """
        request = CommitEpochRequest(
            **writer.fields(),
            kind=writer.kind,
            is_prepared=is_prepared,
            participants=_rows(participants),
        )
        try:
            reply = self._ask(
                writer, request, CommitEpochResponse, _needed(writer, is_prepared=is_prepared)
            )
        except OutcomeUnknownError as e:
            raise epoch_error(
                WriteOutcomeUnknownError
                if writer.kind == SinkKind.BATCH
                else EpochOutcomeUnknownError,
                sink=writer.sink,
                epoch=writer.epoch,
                owner=writer.owner,
                last_epoch=-1,
                detail=str(e),
            ) from e
        status = EpochStatus(reply.status)
        if status != EpochStatus.COMMITTED:
            raise _refusal(writer, status, reply)
        return reply.is_complete

    def prepare(self, writer: EpochWriter, participants: Sequence[Participant]) -> None:
        """Make the epoch durable without deciding it; it then waits, without a time limit, for
        `commit` or `abort` with `is_prepared`. Participants that are not named are aborted."""
        request = PrepareEpochRequest(
            **writer.fields(),
            kind=writer.kind,
            participants=_rows(participants),
        )
        reply = self._ask(writer, request, PrepareEpochResponse)
        status = EpochStatus(reply.status)
        if status != EpochStatus.PREPARED:
            raise _refusal(writer, status, reply)

    def abort(self, writer: EpochWriter, *, is_prepared: bool = False) -> EpochStatus:
        """Abort the epoch; with `is_prepared` also a prepared one.

        ABORTED: nobody reads its rows. COMMITTED: it was committed before. FENCED: a newer run
        writes the sink, and this run's rows are aborted. PREPARED: it waits for its decision.
        """
        request = AbortEpochRequest(
            **writer.fields(),
            kind=writer.kind,
            is_prepared=is_prepared,
        )
        return EpochStatus(self._ask(writer, request, AbortEpochResponse).status)

    def heartbeat(self, writer: EpochWriter) -> EpochStatus:
        """Postpone the epoch's deadline. Every answer but OPEN: the task's rows do not count."""
        request = EpochHeartbeatRequest(**writer.fields())
        return EpochStatus(self._ask(writer, request, EpochHeartbeatResponse).status)

    def describe(self, sink: str) -> SinkDescription | None:
        """The sink's state, or None: no coordinator knows the sink."""
        key = sink_key(sink)
        request = DescribeSinksRequest(sinks=(sink,))
        reply = self._coordinators.call(key, request, DescribeSinksResponse, _check_described)
        row = next((r for r in reply.sinks if r.sink == sink), None)
        if row is None or row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            return None
        return sink_description(row, self._coordinators.broker_of(key))

    def _ask(
        self,
        writer: EpochWriter,
        request: Message,
        reply_type: type[E],
        outcome: Outcome = Outcome.ANY,
    ) -> E:
        return self._coordinators.call(
            sink_key(writer.sink),
            request,
            reply_type,
            lambda reply: _check(writer, reply),
            outcome=outcome,
        )


def _needed(writer: EpochWriter, *, is_prepared: bool) -> Outcome:
    if is_prepared:
        return Outcome.ANY
    return Outcome.PURSUED if writer.kind == SinkKind.BATCH else Outcome.TOLD


def _rows(participants: Sequence[Participant]) -> tuple[EpochParticipant, ...]:
    return tuple(
        EpochParticipant(
            task=p.task, slot=p.slot, producer_id=p.producer_id, producer_epoch=p.producer_epoch
        )
        for p in participants
    )


def _check_code(
    reply: EpochResponse | AllocateEpochTicketResponse | DescribeSinksResponse,
) -> None:
    if reply.error_code:
        raise kafka_error(reply.error_code, getattr(reply, "error_message", None) or "")


def _check_described(reply: DescribeSinksResponse) -> None:
    _check_code(reply)
    for row in reply.sinks:
        if row.error_code not in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
            raise kafka_error(row.error_code, f"sink {row.sink!r}")


def _check(writer: EpochWriter, reply: EpochResponse) -> None:
    """Raise the Kafka error of a response; BUSY is one that time cures."""
    _check_code(reply)
    if reply.status == EpochStatus.BUSY:
        text = f"{writer} waits for earlier epochs that are still being completed"
        raise kafka_error(ErrorCode.CONCURRENT_TRANSACTIONS, text)


def _refusal(
    writer: EpochWriter,
    status: EpochStatus,
    reply: JoinEpochResponse | CommitEpochResponse | PrepareEpochResponse,
) -> EpochError:
    return refusal(
        status,
        sink=writer.sink,
        epoch=writer.epoch,
        owner=writer.owner,
        last_epoch=reply.last_epoch,
        detail=reply.error_message or "",
    )
