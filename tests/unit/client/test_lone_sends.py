"""A thread that waits for its only batch sends it itself: the same promises as by the sender."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest

from headwater import ClosedError, Producer, TopicPartition
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.core.lone_produce import LoneProduce
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headwater.wire.framing import encode_request
from headwater.wire.headers import ResponseHeader
from headwater.wire.schema import encode
from headwater_broker.testing import InProcessBroker

LIMIT_S = 60.0
TOPIC_ID = UUID(int=7)


class Exchanges:
    """Counts what waiting threads send; `error` is raised once, after the next response."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.begun = threading.Event()
        self.error: BaseException | None = None
        real = BlockingConnection.exchange

        def exchange(
            connection: BlockingConnection, request: bytes | bytearray, timeout_s: float
        ) -> bytes:
            self.threads.append(threading.get_ident())
            self.begun.set()
            response = real(connection, request, timeout_s)
            error, self.error = self.error, None
            if error is not None:
                raise error
            return response

        monkeypatch.setattr(BlockingConnection, "exchange", exchange)


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Exchanges:
    return Exchanges(monkeypatch)


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as made:
        yield made


def send_until_short(producer: Producer, topic: str, exchanges: Exchanges) -> int:
    """Wait for record after record until this thread sends them; how many that took."""
    count, seen = 0, len(exchanges.threads)
    while len(exchanges.threads) < seen + 3:
        assert producer.send(topic, str(count)).result(LIMIT_S).partition == 0
        count += 1
    return count


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


@pytest.mark.parametrize("version", range(ProduceRequest.flexible, ProduceRequest.versions[1] + 1))
def test_the_patterns_are_what_the_codec_writes_and_reads(version: int) -> None:
    made = LoneProduce("t", TOPIC_ID, 3, version=version, client_id="c", acks=-1, timeout_ms=5)
    for batch in (b"x", bytes(200), bytes(70_000)):
        row = PartitionProduceData(index=3, records=batch)
        topic = TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=(row,))
        request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=(topic,))
        encoded = encode_request(request, version, 99, "c")
        assert made.request(99, batch) == len(encoded).to_bytes(4, "big") + encoded

    def response(
        throttle_time_ms: int = 0, index: int = 3, error_code: int = 0, at: int = -1
    ) -> bytes:
        row = PartitionProduceResponse(
            index=index,
            error_code=error_code,
            base_offset=1 << 40,
            log_append_time_ms=at,
            log_start_offset=5,
        )
        topic = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=(row,))
        reply = ProduceResponse(responses=(topic,), throttle_time_ms=throttle_time_ms)
        body = encode(ResponseHeader(correlation_id=99), 1) + encode(reply, version)
        return len(body).to_bytes(4, "big") + body

    plain = response()
    assert made.acknowledged(plain, 99) == (1 << 40, -1)
    assert made.acknowledged(response(at=8), 99) == (1 << 40, 8)
    assert made.acknowledged(plain, 98) is None
    for other in (response(error_code=6), response(throttle_time_ms=1), response(index=4)):
        assert made.acknowledged(other, 99) is None
    assert made.decoded(response(error_code=6), 99).responses[0].partition_responses[0].error_code
    with pytest.raises(ValueError, match="98 was expected"):
        made.decoded(plain, 98)


def test_an_old_version_has_no_patterns() -> None:
    with pytest.raises(ValueError, match="version 8 is not flexible"):
        LoneProduce("t", TOPIC_ID, 0, version=8, client_id=None, acks=-1, timeout_ms=5)


def test_records_waited_for_one_by_one_are_sent_by_the_waiting_thread(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    with broker.producer(linger_ms=0) as producer:
        count = send_until_short(producer, topic, exchanges)
        offsets = [producer.send(topic, str(count + n)).result().offset for n in range(20)]
        now = producer.statistics()
    assert offsets == list(range(count, count + 20))
    assert set(exchanges.threads) == {threading.get_ident()}
    assert (now.records_sent, now.batches_sent) == (count + 20, count + 20)
    assert (now.buffer_bytes, now.records_waiting) == (0, 0)
    assert now.requests_sent == count + 20 and now.request_latency_ms_max > 0
    assert values(broker, topic) == [str(n) for n in range(count + 20)]


def test_a_flush_sends_its_records_and_does_not_linger(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    with broker.producer(linger_ms=600_000) as producer:
        while len(exchanges.threads) < 3:
            sent = [producer.send(topic, str(n)) for n in range(4)]
            producer.flush(LIMIT_S)
            assert all(future.done() for future in sent)
            assert producer.unacked() == []


def test_a_record_that_nobody_waits_for_leaves_all_the_same(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    arrived = threading.Event()
    with broker.producer(linger_ms=0) as producer:
        count = send_until_short(producer, topic, exchanges)
        producer.send(topic, str(count)).add_done_callback(lambda _: arrived.set())
        assert arrived.wait(LIMIT_S)
        assert producer.send(topic, str(count + 1)).result().offset == count + 1


def test_callbacks_run_on_the_producers_own_thread(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    called: list[int] = []
    arrived = threading.Event()

    def note(_: object) -> None:
        called.append(threading.get_ident())
        arrived.set()

    with broker.producer(linger_ms=0) as producer:
        send_until_short(producer, topic, exchanges)
        while not called:
            future = producer.send(topic, b"v")
            future.add_done_callback(note)
            future.result(LIMIT_S)
            assert arrived.wait(LIMIT_S)
    assert called != [threading.get_ident()]


@pytest.mark.parametrize("error", [ConnectionResetError("cut"), BlockingIOError(11, "late")])
def test_a_lost_response_costs_no_record_and_writes_none_twice(
    broker: InProcessBroker, exchanges: Exchanges, error: Exception
) -> None:
    topic = broker.topic()
    with broker.producer(linger_ms=0) as producer:
        count = send_until_short(producer, topic, exchanges)
        exchanges.error = error
        while exchanges.error is not None:
            assert producer.send(topic, str(count)).result(LIMIT_S).offset == count
            count += 1
        assert producer.statistics().batches_retried == 1
        count += send_again(producer, topic, count, exchanges)
    assert values(broker, topic) == [str(n) for n in range(count)]


def send_again(producer: Producer, topic: str, first: int, exchanges: Exchanges) -> int:
    """The way is short again after a while."""
    count, seen = 0, len(exchanges.threads)
    while len(exchanges.threads) == seen:
        assert producer.send(topic, str(first + count)).result(LIMIT_S).offset == first + count
        count += 1
    return count


def test_a_connection_that_the_broker_cuts_costs_no_record(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    with broker.producer(linger_ms=0) as producer:
        count = send_until_short(producer, topic, exchanges)
        broker.drop_next_ack()
        for _ in range(10):
            assert producer.send(topic, str(count)).result(LIMIT_S).offset == count
            count += 1
    assert values(broker, topic) == [str(n) for n in range(count)]


def test_an_interrupt_ends_the_wait_and_not_the_record(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    with broker.producer(linger_ms=0) as producer:
        count = send_until_short(producer, topic, exchanges)
        exchanges.error = KeyboardInterrupt()
        interrupted = False
        while not interrupted:
            future = producer.send(topic, str(count))
            count += 1
            try:
                future.result(LIMIT_S)
            except KeyboardInterrupt:
                interrupted = True
        assert future.result(LIMIT_S).offset == count - 1
        assert producer.send(topic, str(count)).result(LIMIT_S).offset == count
    assert values(broker, topic) == [str(n) for n in range(count + 1)]


def test_a_leader_that_is_lost_and_comes_back(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    with broker.producer(linger_ms=0) as producer:
        count = send_until_short(producer, topic, exchanges)
        undo = broker.lose_leader(topic)
        sent = [producer.send(topic, str(count))]
        waiting = threading.Thread(target=sent[0].result, args=(LIMIT_S,))
        waiting.start()
        sent += [producer.send(topic, str(count + n)) for n in (1, 2)]
        undo()
        producer.flush(LIMIT_S)
        waiting.join(LIMIT_S)
        assert [future.result(LIMIT_S).offset for future in sent] == [count, count + 1, count + 2]
    broker.errors.clear()
    assert values(broker, topic) == [str(n) for n in range(count + 3)]


def test_many_threads_wait_for_their_own_records(
    broker: InProcessBroker, exchanges: Exchanges
) -> None:
    topic = broker.topic()
    offsets: list[int] = []
    with broker.producer(linger_ms=0) as producer:
        first = send_until_short(producer, topic, exchanges)

        def work() -> None:
            for _ in range(50):
                offsets.append(producer.send(topic, b"v").result(LIMIT_S).offset)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    assert sorted(offsets) == list(range(first, first + 200))


@pytest.mark.parametrize("is_short", [True, False])
def test_closing_fails_what_is_in_flight(
    broker: InProcessBroker, exchanges: Exchanges, is_short: bool
) -> None:
    """It was left undone for ever: `result()` did not return."""
    topic = broker.topic()
    with broker.producer(linger_ms=0) as producer:
        if is_short:
            send_until_short(producer, topic, exchanges)
        else:
            producer.send(topic, b"first").result(LIMIT_S)
        outcome: list[BaseException | None] = []
        with broker.pause():
            exchanges.begun.clear()
            future = producer.send(topic, b"in flight")
            waiting = threading.Thread(target=lambda: outcome.append(future.exception(LIMIT_S)))
            waiting.start()
            while not any(row.state == "in doubt" for row in producer.unacked()):
                exchanges.begun.wait(0.001)
            producer.close(timeout=0)
            waiting.join(LIMIT_S)
    [error] = outcome
    assert isinstance(error, ClosedError) and "before the record was delivered" in str(error)
