"""EpochClient against scripted brokers: moves of the coordinator, lost replies, refusals."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headwater.client.blocking.epoch_client import (
    CheckpointMismatchError,
    EpochAbortedError,
    EpochClient,
    EpochError,
    EpochOutcomeUnknownError,
    EpochPreparedError,
    EpochsUnsupportedError,
    EpochWriter,
    Participant,
    SinkFencedError,
    SinkOwnedError,
    WriteOutcomeUnknownError,
)
from headwater.client.errors import KafkaTimeoutError
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater.wire.apis.k03_metadata import MetadataResponse, MetadataResponseBroker
from headwater.wire.apis.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.apis.k10000_allocate_epoch_ticket import AllocateEpochTicketResponse
from headwater.wire.apis.k10001_join_epoch import JoinEpochRequest, JoinEpochResponse
from headwater.wire.apis.k10002_commit_epoch import CommitEpochRequest, CommitEpochResponse
from headwater.wire.apis.k10003_abort_epoch import AbortEpochResponse
from headwater.wire.apis.k10004_prepare_epoch import PrepareEpochResponse
from headwater.wire.apis.k10005_epoch_heartbeat import EpochHeartbeatResponse
from headwater.wire.apis.k10006_describe_sinks import DescribedSink, DescribeSinksResponse
from headwater.wire.epoch_values import EpochStatus, SinkKind
from headwater.wire.schema import Message, encode

RUN = UUID(int=7)
WRITER = EpochWriter("sink", "query", RUN, ticket=3, epoch=5)
ME = Participant(0, 2, 900, 4, "__hw.sink.2", 12.0)
OWN_KEYS = {3: (0, 13), 10: (0, 6), **dict.fromkeys(range(10000, 10009), (0, 0))}
Answer = Any
"""A response, or the exception instead of one."""


class Brokers:
    """Two brokers, the coordinator's id, and a script of answers to Headwater's own requests."""

    def __init__(self, *script: Answer) -> None:
        self.coordinator = 0
        self.down: set[int] = set()
        self.keys: dict[int, tuple[int, int]] = dict(OWN_KEYS)
        self.script: list[Answer | Callable[[], Answer]] = list(script)
        self.asked: list[tuple[int, Any]] = []
        """(broker, request) of Headwater's own requests."""
        self.found: list[str] = []
        self.clock = ManualClock()
        self.pauses = 0

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        self.clock.advance(int(seconds * 1000))

    def client(self) -> EpochClient:
        return EpochClient(
            "host:9092,host:9093",
            clock=self.clock,
            retry_timeout_s=5,
            connect=lambda host, port, **_: Link(self, host, port),
            sleep=self.sleep,
        )


class Link:
    """The part of BlockingConnection that the client uses."""

    def __init__(self, brokers: Brokers, host: str, port: int) -> None:
        self._brokers, self._id = brokers, port - 9092
        self.host, self.port, self.is_open = host, port, True
        self.versions = brokers.keys
        self._check()

    def _check(self) -> None:
        if self._id in self._brokers.down:
            raise ConnectionRefusedError(f"{self.port} refuses")

    def version_for(self, request: type[Message]) -> int:
        return min(self.versions[request.api_key][1], request.versions[1])

    def call(self, request: Any, _reply: object, **_more: object) -> Any:
        self._check()
        encode(request, self.version_for(type(request)))
        brokers = self._brokers
        if request.api_key == 3:
            rows = tuple(
                MetadataResponseBroker(node_id=n, host="host", port=9092 + n) for n in (0, 1)
            )
            return MetadataResponse(brokers=rows, cluster_id="c", controller_id=0, topics=())
        if isinstance(request, FindCoordinatorRequest):
            brokers.found.append(request.coordinator_keys[0])
            row = Coordinator(node_id=brokers.coordinator, error_code=0)
            return FindCoordinatorResponse(coordinators=(row,))
        brokers.asked.append((self._id, request))
        answer = brokers.script.pop(0)
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_open = False


def committed(*, complete: bool = True) -> CommitEpochResponse:
    return CommitEpochResponse(status=EpochStatus.COMMITTED, last_epoch=5, is_complete=complete)


def code(kind: Any, error: ErrorCode) -> Any:
    return kind(error_code=error)


def test_a_ticket_comes_from_the_coordinator_of_tickets() -> None:
    brokers = Brokers(AllocateEpochTicketResponse(ticket=41))
    assert brokers.client().allocate_ticket() == 41
    assert brokers.found == ["__hw"]


def test_a_task_joins_and_gets_a_participant() -> None:
    brokers = Brokers(
        JoinEpochResponse(
            status=EpochStatus.OPEN, transactional_id="__hw.sink.2", slot=2, producer_id=900,
            producer_epoch=4, heartbeat_interval_ms=12_000,
        )
    )  # fmt: skip
    assert brokers.client().join(WRITER, task=0, attempt=8, topics={"t": [0, 1]}) == ME
    [(_, request)] = brokers.asked
    assert isinstance(request, JoinEpochRequest)
    assert (request.run, request.ticket, request.epoch, request.attempt) == (RUN, 3, 5, 8)
    assert [(t.name, t.partitions) for t in request.topics] == [("t", (0, 1))]
    assert brokers.found == ["__hw.sink"]


def test_a_join_of_a_committed_epoch_gives_no_participant() -> None:
    brokers = Brokers(JoinEpochResponse(status=EpochStatus.COMMITTED, last_epoch=5))
    assert brokers.client().join(WRITER, task=0, attempt=8) is None


@pytest.mark.parametrize(
    ("status", "kind", "remedy"),
    [
        (EpochStatus.ABORTED, EpochAbortedError, "Write the epoch again"),
        (EpochStatus.FENCED, SinkFencedError, "a sink of its own"),
        (
            EpochStatus.CHECKPOINT_MISMATCH,
            CheckpointMismatchError,
            "last committed epoch is 9.*takeover sink --owner query --last-epoch 4",
        ),
        (EpochStatus.SINK_OWNED, SinkOwnedError, "takeover sink --owner query --last-epoch 4"),
        (EpochStatus.PREPARED, EpochPreparedError, "headwater sinks commit sink N --execute"),
    ],
)
def test_each_refusal_has_an_error_with_the_remedy(
    status: EpochStatus, kind: type[EpochError], remedy: str
) -> None:
    refused = JoinEpochResponse(status=status, last_epoch=9, error_message="owner other")
    with pytest.raises(kind, match=f"epoch 5 of sink 'sink'.*{remedy}.*owner other") as caught:
        Brokers(refused).client().join(WRITER, task=0, attempt=8)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy), copy.epoch, copy.last_epoch) == (kind, str(caught.value), 5, 9)


def test_kafka_is_recognised_before_anything_is_sent() -> None:
    brokers = Brokers()
    brokers.keys = {3: (0, 13), 10: (0, 6)}
    with pytest.raises(EpochsUnsupportedError, match="Apache Kafka or an older Headwater"):
        brokers.client().allocate_ticket()
    assert not brokers.found, "Kafka would create __transaction_state"


def test_a_commit_follows_its_coordinator() -> None:
    brokers = Brokers()

    def move(answer: Answer) -> Callable[[], Answer]:
        def moved() -> Answer:
            brokers.coordinator = 1
            brokers.down = {0} if isinstance(answer, Exception) else set()
            return answer

        return moved

    for first in (code(CommitEpochResponse, ErrorCode.NOT_COORDINATOR), ConnectionError("reset")):
        brokers.coordinator, brokers.asked, brokers.down = 0, [], set()
        brokers.script = [move(first), committed(complete=False)]
        assert brokers.client().commit(WRITER, [ME]) is False
        assert [broker for broker, _ in brokers.asked] == [0, 1]
    (row,) = brokers.asked[-1][1].participants
    assert (row.task, row.slot, row.producer_id, row.producer_epoch) == (0, 2, 900, 4)


def unanswered() -> list[Answer]:
    """A lost reply, and then no coordinator for longer than the time limit of 5 s."""
    gone = code(CommitEpochResponse, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return [TimeoutError("no reply"), *[gone] * 40]


def test_a_lost_reply_of_a_batch_writes_commit_is_pursued_beyond_the_time_limit() -> None:
    brokers = Brokers(*unanswered(), committed())
    assert brokers.client().commit(replace(WRITER, kind=SinkKind.BATCH), [ME]) is True
    assert brokers.clock.monotonic() > 10, "the time limit of 5 s never passed"


def test_a_querys_commit_without_an_answer_is_given_up_in_time() -> None:
    """Its next start asks for the outcome."""
    said = "epoch 5 of sink 'sink': it may be committed or not.*start the query again.*5 s"
    brokers = Brokers(*unanswered(), committed())
    with pytest.raises(EpochOutcomeUnknownError, match=said):
        brokers.client().commit(WRITER, [ME])
    assert 5 <= brokers.clock.monotonic() < 10


def test_a_commit_that_never_reached_a_coordinator_fails_in_time() -> None:
    brokers = Brokers(AllocateEpochTicketResponse(ticket=1))
    client = brokers.client()
    client.allocate_ticket()
    brokers.down = {0, 1}
    with pytest.raises(KafkaTimeoutError):
        client.commit(WRITER, [ME])
    assert len(brokers.asked) == 1


def test_the_commit_of_a_prepared_epoch_is_given_up_in_time() -> None:
    with pytest.raises(KafkaTimeoutError, match="did not succeed within 5 s"):
        Brokers(*unanswered(), committed()).client().commit(WRITER, (), is_prepared=True)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.RESOURCE_NOT_FOUND,  # the sink was forgotten meanwhile
    ],
)
def test_a_refusal_after_a_lost_reply_of_a_commit_is_an_unknown_outcome(error: ErrorCode) -> None:
    denied = code(CommitEpochResponse, error)
    with pytest.raises(EpochOutcomeUnknownError, match="may be committed or not"):
        Brokers(TimeoutError("no reply"), denied).client().commit(WRITER, [ME])
    batch = replace(WRITER, kind=SinkKind.BATCH)
    with pytest.raises(WriteOutcomeUnknownError, match="headwater sinks show sink tells"):
        Brokers(TimeoutError("no reply"), denied).client().commit(batch, [ME])
    with pytest.raises(KafkaError, match=error.name):
        Brokers(denied).client().commit(WRITER, [ME])


def test_a_commit_answered_with_aborted_after_a_lost_reply_is_not_committed() -> None:
    """Coordinators say it only of a sink that they know."""
    aborted = CommitEpochResponse(status=EpochStatus.ABORTED)
    with pytest.raises(EpochAbortedError):
        Brokers(TimeoutError("no reply"), aborted).client().commit(WRITER, [ME])


def test_busy_is_waited_out_up_to_the_time_limit() -> None:
    busy = JoinEpochResponse(status=EpochStatus.BUSY)
    brokers = Brokers(busy, busy, JoinEpochResponse(status=EpochStatus.COMMITTED))
    assert brokers.client().join(WRITER, task=0, attempt=1) is None
    assert brokers.pauses == 2
    with pytest.raises(KafkaTimeoutError, match="earlier epochs"):
        Brokers(*[busy] * 50).client().join(WRITER, task=0, attempt=1)


def test_prepare_then_commit_of_the_prepared_epoch() -> None:
    brokers = Brokers(PrepareEpochResponse(status=EpochStatus.PREPARED), committed())
    client = brokers.client()
    client.prepare(WRITER, [ME])
    assert client.commit(WRITER, (), is_prepared=True)
    request = brokers.asked[-1][1]
    assert isinstance(request, CommitEpochRequest)
    assert request.is_prepared
    assert request.participants == ()
    with pytest.raises(EpochAbortedError):
        Brokers(PrepareEpochResponse(status=EpochStatus.ABORTED)).client().prepare(WRITER, [ME])


@pytest.mark.parametrize("status", [EpochStatus.ABORTED, EpochStatus.COMMITTED, EpochStatus.FENCED])
def test_abort_and_heartbeat_return_the_status(status: EpochStatus) -> None:
    brokers = Brokers(AbortEpochResponse(status=status), EpochHeartbeatResponse(status=status))
    client = brokers.client()
    assert client.abort(WRITER) == status
    assert client.heartbeat(WRITER) == status


def test_describe_of_a_sink() -> None:
    row = DescribedSink(sink="sink", owner="query", kind=0, run=RUN, ticket=3, last_epoch=4)
    unknown = DescribedSink(
        sink="sink", owner="", kind=0, run=RUN, error_code=ErrorCode.RESOURCE_NOT_FOUND
    )
    client = Brokers(
        DescribeSinksResponse(sinks=(row,)), DescribeSinksResponse(sinks=(unknown,))
    ).client()
    found = client.describe("sink")
    assert found is not None
    assert (found.owner, found.kind, found.last_epoch, found.coordinator) == (
        "query",
        "query",
        4,
        0,
    )
    assert client.describe("sink") is None
