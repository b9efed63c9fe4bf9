"""The store over a topic in memory: takeovers, unknown outcomes, a topic that is made anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from threading import Condition
from typing import Any

import pytest

from headwater.client.errors import (
    KafkaTimeoutError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RetriableTransactionError,
    UnknownServerError,
)
from headwater.client.values import ConsumerRecord
from headwater.errors import ErrorCode, HeadwaterError
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_gateway.registry.decision import Decision
from headwater_gateway.registry.errors import RegistryError
from headwater_gateway.registry.records import ModeRecord, encode_record
from headwater_gateway.registry.schemas_topic import WRITE_ID, TopicOptions
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.topic_store import TopicStore

UNKNOWN = RetriableTransactionError(ErrorCode.REQUEST_TIMED_OUT, "no answer")


class MemoryTopic:
    """Records and markers of one partition; the last writer fences the others."""

    def __init__(self) -> None:
        self.options = TopicOptions("memory:1")
        self.changed = Condition()
        self.log: list[ConsumerRecord | None] = []
        """None: a marker."""
        self.writers: list[Writer] = []
        self.failures: list[HeadwaterError] = []
        """What the next writes raise: UNKNOWN after the commit, others instead of it."""
        self.generation = 0

    def create(self) -> None:
        pass

    def close(self) -> None:
        pass

    def cluster_id(self) -> str:
        return "c1"

    def end(self) -> int:
        return len(self.log)

    def reader(self) -> Reader:
        return Reader(self)

    def writer(self) -> Writer:
        self.writers.append(Writer(self))
        return self.writers[-1]

    def append(self, rows: Sequence[tuple[bytes, bytes | None]], write_id: str) -> int:
        with self.changed:
            for key, value in rows:
                headers = ((WRITE_ID, write_id.encode()),)
                self.log.append(
                    ConsumerRecord("_schemas", 0, len(self.log), 0, 0, key, value, headers, 0)
                )
            last = len(self.log) - 1
            self.log.append(None)
            self.changed.notify_all()
            return last

    def make_anew(self) -> None:
        with self.changed:
            self.log.clear()
            self.generation += 1
            self.changed.notify_all()


class Reader:
    """Of one follower."""

    def __init__(self, topic: MemoryTopic) -> None:
        self.topic, self.offset = topic, 0
        self.generation = topic.generation

    def rewind(self) -> None:
        self.offset = 0

    def read(self) -> list[ConsumerRecord]:
        topic = self.topic
        with topic.changed:
            topic.changed.wait_for(lambda: self._is_stale() or len(topic.log) > self.offset, 0.02)
            if self._is_stale():
                self.generation = topic.generation
                raise OffsetOutOfRangeError("it begins at 0")
            rows, self.offset = topic.log[self.offset :], len(topic.log)
            return [row for row in rows if row is not None]

    def _is_stale(self) -> bool:
        return self.generation != self.topic.generation

    def position(self) -> int:
        return self.offset

    def close(self) -> None:
        pass


class Writer:
    """Of one takeover."""

    def __init__(self, topic: MemoryTopic) -> None:
        self.topic = topic

    def write(self, records: Sequence[tuple[bytes, bytes | None]], write_id: str) -> int:
        if self.topic.writers[-1] is not self:
            raise ProducerFencedError("a newer writer")
        failure = self.topic.failures.pop(0) if self.topic.failures else None
        if failure is not None and failure is not UNKNOWN:
            raise failure
        last = self.topic.append(records, write_id)
        if failure is not None:
            raise failure
        return last

    def close(self) -> None:
        pass


@pytest.fixture
def topic() -> MemoryTopic:
    return MemoryTopic()


@pytest.fixture
def stores(topic: MemoryTopic) -> Iterator[list[TopicStore]]:
    with ExitStack() as stack:
        made = []
        for seed in (1, 2):
            store = TopicStore(topic, ManualClock(), SeededEntropy(seed))  # type: ignore[arg-type]
            stack.callback(store.close)
            store.start()
            made.append(store)
        yield made


def count_up(state: RegistryState) -> Decision:
    """A subject more, with the reply how many there were."""
    number = len(state.own_modes())
    return Decision(number, (ModeRecord(f"s{number}", "READONLY"),))


def test_two_instances_write_in_turn_and_decide_by_the_newest_state(
    topic: MemoryTopic, stores: list[TopicStore]
) -> None:
    replies = [stores[n % 2].execute(count_up) for n in range(6)]
    assert replies == list(range(6))
    assert len(topic.writers) == 6
    assert [stores[0].execute(count_up) for _ in range(3)] == [6, 7, 8]
    assert len(topic.writers) == 7


def test_what_writes_nothing_takes_nothing_over(
    topic: MemoryTopic, stores: list[TopicStore]
) -> None:
    assert stores[1].execute(lambda _state: Decision("as it is")) == "as it is"
    assert topic.writers == []


def test_an_own_write_is_in_the_state_when_it_is_answered(stores: list[TopicStore]) -> None:
    stores[0].execute(count_up)
    assert stores[0].state().own_modes() == {"s0": "READONLY"}


def test_a_write_that_was_committed_after_all_is_not_repeated(
    topic: MemoryTopic, stores: list[TopicStore]
) -> None:
    topic.failures = [UNKNOWN]
    assert stores[0].execute(count_up) == 0
    assert len(topic.log) == 2  # the record, its marker


def test_a_write_that_was_not_committed_is_decided_again(
    topic: MemoryTopic, stores: list[TopicStore]
) -> None:
    topic.failures = [ProducerFencedError("timed out"), KafkaTimeoutError("later")]
    assert stores[0].execute(count_up) == 0
    assert len(topic.writers) == 3


def test_errors_of_the_brokers_have_confluents_codes(
    topic: MemoryTopic, stores: list[TopicStore]
) -> None:
    for failure, code in (
        (MessageTooLargeError("1 MB"), [422, 42209]),
        (UnknownServerError("?"), [500, 50001]),
    ):
        topic.failures = [failure]
        with pytest.raises(RegistryError) as failed:
            stores[0].execute(count_up)
        assert [failed.value.status, failed.value.code] == code
    assert stores[0].execute(count_up) == 0


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    topic: MemoryTopic, stores: list[TopicStore]
) -> None:
    stores[0].execute(count_up)
    topic.make_anew()
    topic.append([encode_record(ModeRecord("new", "IMPORT"))], "x")
    rows = [(None, None), (b"odd", b"odd"), *[encode_record(ModeRecord("other", "IMPORT"))]]
    topic.append(rows, "y")  # type: ignore[arg-type]

    def told(state: RegistryState) -> Any:
        return Decision(dict(state.own_modes()))

    assert stores[0].execute(told) == {"new": "IMPORT", "other": "IMPORT"}
