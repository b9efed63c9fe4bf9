"""Ctrl-C at any step of a thread that sends its batch itself: each record arrives once."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from headwater import Producer, TopicPartition
from headwater.client import lone_sends
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.core.partition_queue import LentBatch, PartitionQueue, ProducerBatch
from headwater.client.futures import BatchCompletion
from headwater.client.loop_thread import LoopThread
from headwater_broker.testing import InProcessBroker

LIMIT_S = 60.0
STEPS_IN = ("client/lone_sends.py", "core/partition_queue.py", "record_accumulator.py")
LEFT_OUT = ("send", "_way", "_pattern", "_note_wait", "_open", "_expect", "_give_back")
"""What is before and after the loan."""


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as made:
        yield made


class Exchanges:
    """Counts the exchanges of waiting threads; `after` is called once, after the next one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.after: Callable[[], object] | None = None
        real = BlockingConnection.exchange

        def exchange(*arguments: Any) -> bytes:
            self.count += 1
            response = real(*arguments)
            after, self.after = self.after, None
            if after is not None:
                after()
            return response

        monkeypatch.setattr(BlockingConnection, "exchange", exchange)


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Exchanges:
    return Exchanges(monkeypatch)


class Interrupt:
    """Raises KeyboardInterrupt at one line of the steps of a loan."""

    def __init__(self, at: int) -> None:
        self.was_raised = False
        self._left = at

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if not code.co_filename.endswith(STEPS_IN) or code.co_name in LEFT_OUT:
            return None
        line = linecache.getline(code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith("with "):  # the lock is being released
            self._left -= 1
            if self._left < 0 and not self.was_raised:
                self.was_raised = True
                raise KeyboardInterrupt
        return self


def values(broker: InProcessBroker, topic: str) -> list[str]:
    """Every record of partition 0."""
    place = TopicPartition(topic, 0)
    with broker.consumer() as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found: list[str] = []
        while consumer.position(place) < end:
            for rows in consumer.poll(1000).values():
                found += [(row.value or b"").decode() for row in rows]
    return found


class Sending:
    """Sends numbered records, one after the other, and waits for each."""

    def __init__(self, producer: Producer, topic: str, exchanges: Exchanges) -> None:
        self.count = 0
        self.called: list[int] = []
        self._producer, self._topic, self._exchanges = producer, topic, exchanges

    def until_short(self) -> None:
        """Until this thread sends them."""
        seen = self._exchanges.count
        while self._exchanges.count == seen:
            self.one()

    def one(self, trace: Interrupt | None = None) -> None:
        """One record; a wait that is interrupted is taken up again."""
        number = self.count
        self.count += 1
        future = self._producer.send(self._topic, str(number))
        future.add_done_callback(lambda _: self.called.append(number))
        former = sys.gettrace()
        sys.settrace(trace or former)
        try:
            future.result(LIMIT_S)
        except KeyboardInterrupt:
            assert trace is not None and trace.was_raised
        finally:
            sys.settrace(former)
        assert future.result(LIMIT_S).offset == number


def test_an_interrupt_at_any_step_costs_no_record_and_writes_none_twice(
    broker: InProcessBroker, exchanges: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_sends, "WAITS_BEFORE", 0)
    topic = broker.topic()
    at = 0
    with broker.producer(linger_ms=0) as producer:
        sending = Sending(producer, topic, exchanges)
        while True:
            sending.until_short()
            seen, trace = exchanges.count, Interrupt(at)
            sending.one(trace)
            if trace.was_raised:
                at += 1
            elif exchanges.count > seen:
                break  # a whole loan has no more steps
        producer.flush(LIMIT_S)
        now = producer.statistics()
        assert producer.unacked() == []
    assert at > 50
    assert (now.buffer_bytes, now.records_waiting) == (0, 0)
    assert values(broker, topic) == [str(n) for n in range(sending.count)]
    assert sorted(sending.called) == list(range(sending.count))


def lent() -> tuple[PartitionQueue, ProducerBatch]:
    queue = PartitionQueue("t", 0, is_idempotent=True)
    batch = queue.lent = queue.open = ProducerBatch(queue, BatchCompletion(lambda: 0.0), 0.0)
    batch.count = 3
    return queue, batch


def test_a_batch_comes_back_once() -> None:
    queue, batch = lent()
    queue.next_batch(7, 0)
    assert queue.take_back(batch) is LentBatch.IN_FLIGHT
    assert queue.take_back(batch) is LentBatch.NOT_LENT
    assert (queue.in_flight, batch.sequence, queue.next_sequence) == (1, 0, 3)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_batch_that_was_not_taken_waits_as_before(is_sealed: bool) -> None:
    queue, batch = lent()
    if is_sealed:
        queue.seal()
    assert queue.take_back(batch) is LentBatch.WAITING
    assert queue.next_batch(7, 0) is batch and queue.in_flight == 1


def test_a_batch_between_the_queue_and_its_number_is_sent_again() -> None:
    queue, batch = lent()
    queue.open = None
    assert queue.take_back(batch) is LentBatch.IN_FLIGHT
    queue.failed(batch, ConnectionError("cut"), 0.0, retry_until=9.0, backoff_s=0.0)
    assert queue.next_batch(7, 0) is batch and batch.sequence == 0
    queue.succeeded(batch)
    assert queue.is_idle and queue.next_sequence == 3


@pytest.mark.parametrize("is_settled", [False, True])
def test_an_acknowledged_batch_is_not_sent_again(is_settled: bool) -> None:
    queue, batch = lent()
    queue.next_batch(7, 0)
    batch.base_offset = 5
    if is_settled:
        queue.succeeded(batch)
    assert queue.take_back(batch) is LentBatch.ACKNOWLEDGED
    assert queue.is_idle and queue.waiting_since(1.0, 0.0) is None


def test_a_record_that_expired_in_the_queue_does_not_come_back() -> None:
    queue, batch = lent()
    assert queue.expire(1.0) == [batch]
    batch.is_done = True
    assert queue.take_back(batch) is LentBatch.NOT_LENT and queue.is_idle


def test_a_loop_that_has_ended_costs_no_acknowledgement_and_no_callback(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic, other = broker.topic(), broker.topic()

    def gone(*_: object) -> None:
        raise RuntimeError("Event loop is closed")

    with broker.producer(linger_ms=0) as producer, pytest.MonkeyPatch.context() as patch:
        sending = Sending(producer, topic, exchanges)
        producer.send(other, b"first").result(LIMIT_S)
        sending.until_short()

        def end() -> None:
            producer.send(other, b"left over")
            patch.setattr(LoopThread, "post", gone)
            patch.setattr(lone_sends, "TICK_S", LIMIT_S)  # so that ticks would begin too

        exchanges.after = end
        while exchanges.after is not None:
            sending.one()
        assert sending.called[-1] == sending.count - 1
        patch.undo()
        producer.flush(LIMIT_S)


def test_a_thread_leaves_a_new_authentication_to_the_next_connection(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    with broker.producer(linger_ms=0) as producer:
        sending = Sending(producer, topic, exchanges)
        sending.until_short()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BlockingConnection, "is_authentication_due", property(lambda _: True))
            seen = exchanges.count
            sending.one()
            assert exchanges.count == seen
        sending.until_short()
