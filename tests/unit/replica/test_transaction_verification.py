"""The leader's question before a transaction's first batch: section by section of the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.results import AppendOrigin, AppendResult
from headwater_broker.replica.marker_writer import TopicPartition, TransactionMarker
from headwater_broker.replica.transaction_verification import (
    LowestSequences,
    Producer,
    ProducerKey,
    TransactionVerifier,
    produce_error,
)
from solo_broker import SoloBroker
from unit.log.harness import batch

Outcome = AppendResult | KafkaError
TV1, TV2 = 11, 12
"""Produce versions."""
NONE = ErrorCode.NONE
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
RETRY = ErrorCode.NOT_ENOUGH_REPLICAS


class Coordinator:
    """Answers each question when the test says so. Implements `Enlistment`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, frozenset[TopicPartition], bool]] = []
        self.answers: list[asyncio.Future[ErrorCode | KafkaError | Exception]] = []
        self.topic_ids: dict[TopicPartition, UUID] = {}

    async def enlist(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Mapping[TopicPartition, UUID],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        pid, epoch = producer.producer_id, producer.producer_epoch
        self.asked.append((transactional_id, pid, epoch, frozenset(partitions), verify_only))
        self.topic_ids.update(partitions)
        self.answers.append(asyncio.get_running_loop().create_future())
        answer = await self.answers[-1]
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(partitions, answer)

    async def answer(self, code: ErrorCode | Exception = NONE, question: int = -1) -> None:
        self.answers[question].set_result(code)
        await turns()


class Bench:
    """A broker that leads "t" and "u", and its coordinator."""

    def __init__(self, broker: SoloBroker) -> None:
        self.broker = broker
        self.services = broker.services
        self.coordinator = Coordinator()
        self.verifier = TransactionVerifier(self.coordinator)
        self.partition = broker.replicas.lookup("t", 0)
        self.outcomes: list[ErrorCode] = []

    async def send(
        self,
        sequence: int,
        *,
        version: int = TV2,
        topic: str = "t",
        pid: int = 1,
        epoch: int = 0,
        acks: int = 1,
    ) -> ErrorCode | None:
        """The outcome, None while it waits; then it goes to `outcomes`."""
        data = batch(producer_id=pid, epoch=epoch, sequence=sequence, transactional=True)

        def deliver(outcome: Outcome) -> None:
            self.outcomes.append(outcome.code if isinstance(outcome, KafkaError) else NONE)

        try:
            done = self.services.appends.append_guarded(
                self.broker.replicas.lookup(topic, 0),
                data,
                self.verifier.guard("tx", version),
                deliver,
                acks=acks,
                origin=AppendOrigin.TRANSACTION,
            )
        except KafkaError as error:
            return error.code
        await turns()
        return None if done is None else NONE

    async def end(self, *, epoch: int, version: int = 2, pid: int = 1) -> ErrorCode:
        marker = TransactionMarker(pid, epoch, False, 0, version, {("t", 0): UUID(int=0)})
        return (await self.services.markers.write([marker]))[0]["t", 0]

    @property
    def sequences(self) -> list[int]:
        """Last sequence of each batch that the log remembers of producer 1."""
        entry = self.partition.log.producers.entries.get(1)
        return [] if entry is None else [b.last_sequence for b in entry.batches]


def play(tmp_path: Path, story: Callable[[Bench], Awaitable[None]], **topic: Any) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t", **topic)
            broker.create_topic("u")
            bench = Bench(broker)
            await story(bench)
            await bench.verifier.close()
            await broker.services.appends.close()

    asyncio.run(asyncio.wait_for(run(), 30))


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("version", "verify_only"), [(TV1, True), (TV2, False)])
def test_the_first_batch_asks_and_the_next_ones_do_not(
    tmp_path: Path, version: int, verify_only: bool
) -> None:
    async def story(b: Bench) -> None:
        assert await b.send(0, version=version) is None
        assert b.coordinator.asked == [("tx", 1, 0, frozenset({("t", 0)}), verify_only)]
        assert b.coordinator.topic_ids == {("t", 0): b.partition.topic_id}
        assert await b.send(1, version=version) is None, "in order behind the first"
        assert b.partition.log.log_end_offset == 0
        await b.coordinator.answer()
        assert b.outcomes == [NONE, NONE]
        assert await b.send(2, version=version) is NONE
        assert len(b.coordinator.asked) == 1 and b.sequences == [0, 1, 2]
        assert (b.verifier.verifications_total, b.verifier.failures_total) == (1, {})

    play(tmp_path, story)


def test_partitions_of_one_turn_share_a_question(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        work = [b.send(0), b.send(0, topic="u"), b.send(0, pid=2), b.send(0, version=TV1, pid=3)]
        await asyncio.gather(*work)
        both = frozenset({("t", 0), ("u", 0)})
        assert [(pid, partitions) for _, pid, _, partitions, _ in b.coordinator.asked] == [
            (1, both), (2, frozenset({("t", 0)})), (3, frozenset({("t", 0)}))
        ]  # fmt: skip

    play(tmp_path, story)


def test_another_epoch_asks_again(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        await b.send(0)
        await b.coordinator.answer()
        assert await b.end(epoch=1) is NONE
        assert await b.send(0, epoch=1) is None
        assert len(b.coordinator.asked) == 2

    play(tmp_path, story)


def test_the_same_epoch_asks_again_after_its_marker_in_version_1(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        await b.send(0, version=TV1)
        await b.coordinator.answer()
        assert await b.end(epoch=0, version=1) is NONE
        assert await b.send(1, version=TV1) is None
        await b.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
        assert b.outcomes == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
        assert b.partition.last_stable_offset == 2

    play(tmp_path, story)


@pytest.mark.parametrize("version", [TV1, TV2])
def test_the_epoch_counts_first(tmp_path: Path, version: int) -> None:
    """KAFKA-19690: a late batch is fenced, and asks nobody."""

    async def story(b: Bench) -> None:
        assert await b.end(epoch=3) is NONE
        assert await b.send(0, epoch=2, version=version) is FENCED
        assert await b.send(0, epoch=3, version=version) is None
        assert len(b.coordinator.asked) == 1
        await b.end(epoch=4)
        await turns()
        assert b.outcomes == [FENCED]
        await b.coordinator.answer(ErrorCode.INVALID_TXN_STATE)
        assert b.outcomes == [FENCED], "its answer came late"

    play(tmp_path, story)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, NONE])
def test_a_newer_instance_fences_what_waits(tmp_path: Path, code: ErrorCode) -> None:
    """The epoch says more than the coordinator's code."""

    async def story(b: Bench) -> None:
        await b.send(0)
        await b.send(0, epoch=1)
        await b.coordinator.answer(question=1)
        await b.coordinator.answer(code, question=0)
        assert b.outcomes == [NONE, FENCED]

    play(tmp_path, story)


@pytest.mark.parametrize(("version", "epoch", "marker"), [(TV1, 0, 1), (TV2, 1, 2)])
def test_a_grant_counts_for_the_question_that_it_answers(
    tmp_path: Path, version: int, epoch: int, marker: int
) -> None:
    """ABA: the transaction was aborted, and the next one began, before the first answer came."""

    async def story(b: Bench) -> None:
        await b.send(0, version=version)
        await b.end(epoch=epoch, version=marker)
        await turns()
        assert b.outcomes == [FENCED if version == TV2 else ErrorCode.INVALID_TXN_STATE]
        assert await b.send(0, version=version, epoch=epoch) is None
        await b.coordinator.answer(question=0)
        assert b.sequences == []
        await b.coordinator.answer(question=1)
        assert b.sequences == [0] and b.outcomes[1:] == [NONE]

    play(tmp_path, story)


def test_the_end_of_the_leadership_drops_what_waits(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        await b.send(0)
        b.broker.create_topic("t", leader=2, epoch=3, replicas=(1, 2))
        b.broker.create_topic("t", leader=1, epoch=4, replicas=(1, 2))
        await turns()
        assert b.outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await b.coordinator.answer()
        assert b.sequences == []
        assert await b.send(0) is None, "the new leader asks again"
        assert len(b.coordinator.asked) == 2

    play(tmp_path, story)


def test_a_truncation_drops_what_waits(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        await b.send(0)
        b.partition.restart_at(7)
        await b.coordinator.answer()
        assert b.outcomes == [RETRY]
        assert b.partition.log.log_end_offset == 7

    play(tmp_path, story)


# -- sequences


def test_version_2_without_state_begins_at_zero(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        assert await b.send(1) is OUT_OF_ORDER
        assert b.coordinator.asked == [], "nothing is added for it"
        assert await b.send(0) is None
        assert await b.send(2) is None and await b.send(1) is None
        await b.coordinator.answer()
        assert b.outcomes == [NONE, OUT_OF_ORDER, NONE]

    play(tmp_path, story)


def test_version_1_without_state_begins_at_the_lowest_seen(tmp_path: Path) -> None:
    """The second batch overtook the first, and the coordinator answers for both."""

    async def story(b: Bench) -> None:
        assert await b.send(8, version=TV1) is None and await b.send(7, version=TV1) is None
        await b.coordinator.answer()
        assert b.outcomes == [OUT_OF_ORDER, NONE]
        assert await b.send(8, version=TV1) is NONE
        assert b.sequences == [7, 8]

    play(tmp_path, story)


def test_the_lowest_sequence_outlives_its_question(tmp_path: Path) -> None:
    """The first batch was refused for a while; the second must not be appended before it."""

    async def story(b: Bench) -> None:
        await b.send(7, version=TV1)
        await b.coordinator.answer(ErrorCode.NOT_COORDINATOR)
        assert b.outcomes == [RETRY]
        assert await b.send(8, version=TV1) is None
        await b.coordinator.answer()
        assert b.outcomes == [RETRY, OUT_OF_ORDER]
        assert await b.send(7, version=TV1) is None and await b.send(8, version=TV1) is None
        await b.coordinator.answer()
        assert b.outcomes[2:] == [NONE, NONE] and b.sequences == [7, 8]

    play(tmp_path, story)


def test_lowest_sequences_are_bounded() -> None:
    lowest = LowestSequences(limit=2)
    keys = [ProducerKey(None, pid, 0) for pid in range(3)]  # type: ignore[arg-type]
    for key in keys:
        lowest.note(key, 5)
        lowest.note(key, 4)
        lowest.note(key, 6)
    assert [lowest.get(key, 99) for key in keys] == [99, 4, 4]
    lowest.forget(keys[2])
    assert lowest.get(keys[2], 99) == 99


def test_what_follows_a_refused_batch_is_refused_alike(tmp_path: Path) -> None:
    """Else the client would take the second one for out of order."""

    async def story(b: Bench) -> None:
        for sequence in range(3):
            assert await b.send(sequence, acks=-1) is None
        await b.coordinator.answer()
        assert b.outcomes == [RETRY] * 3

    settings = {"configs": {"min.insync.replicas": "2"}, "replicas": (1, 2), "isr": (1,)}
    play(tmp_path, story, **settings)


# -- errors


@pytest.mark.parametrize(
    ("code", "oldest", "abortable", "newest"),
    [
        ("INVALID_TXN_STATE",) + ("INVALID_TXN_STATE",) * 3,
        ("INVALID_PRODUCER_ID_MAPPING",) + ("INVALID_PRODUCER_ID_MAPPING",) * 3,
        ("TRANSACTION_ABORTABLE", "INVALID_TXN_STATE") + ("TRANSACTION_ABORTABLE",) * 2,
        ("PRODUCER_FENCED",) + ("INVALID_PRODUCER_EPOCH",) * 3,
        ("CONCURRENT_TRANSACTIONS",) + ("NOT_ENOUGH_REPLICAS",) * 2 + ("CONCURRENT_TRANSACTIONS",),
        ("NETWORK_EXCEPTION",) + ("NOT_ENOUGH_REPLICAS",) * 3,
        ("COORDINATOR_LOAD_IN_PROGRESS",) + ("NOT_ENOUGH_REPLICAS",) * 3,
        ("COORDINATOR_NOT_AVAILABLE",) + ("NOT_ENOUGH_REPLICAS",) * 3,
        ("NOT_COORDINATOR",) + ("NOT_ENOUGH_REPLICAS",) * 3,
        ("REQUEST_TIMED_OUT",) + ("NOT_ENOUGH_REPLICAS",) * 3,
        ("OPERATION_NOT_ATTEMPTED",) + ("NOT_ENOUGH_REPLICAS",) * 3,
    ],
)  # fmt: skip
def test_errors_are_translated_per_version(
    code: str, oldest: str, abortable: str, newest: str
) -> None:
    found = [produce_error(ErrorCode[code], version).name for version in (10, 11, 12)]
    assert found == [oldest, abortable, newest]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.NOT_COORDINATOR, "moved"), RETRY),
        (ZeroDivisionError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_coordinator_that_does_not_answer(
    tmp_path: Path, error: Exception, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(b: Bench) -> None:
        await b.send(0)
        await b.coordinator.answer(error)
        assert b.outcomes == [code]
        assert b.verifier.failures_total.total() == 1
        assert await b.send(0) is None, "asked anew"

    play(tmp_path, story)
    assert ("a bug" in caplog.text) == isinstance(error, ZeroDivisionError)
