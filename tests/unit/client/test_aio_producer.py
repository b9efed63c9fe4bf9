"""`AsyncProducer`: order, room, cancellation, flush, transactions, the end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import (
    Admin,
    BufferExhaustedError,
    ClosedError,
    Consumer,
    IllegalStateError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    MessageTooLargeError,
    OptionError,
    Producer,
    ShareConsumer,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer, Delivery
from headwater.client.aio import keywords
from headwater.client.security_options import SECURITY_OPTIONS
from unit.client.served_broker import ServedBroker
from unit.client.transaction_broker import TransactionBroker

LIMIT_S = 30.0
LIMIT_MS = LIMIT_S * 1000


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, which must end."""
    asyncio.run(asyncio.wait_for(work, 2 * LIMIT_S))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path) as broker:
        broker.do(lambda b: b.create_topic("t"))
        yield broker


def values(served: ServedBroker, count: int) -> list[bytes | None]:
    """The first `count` values of t-0."""
    with Consumer(bootstrap_servers=served.bootstrap, consumer_timeout_ms=20_000) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek_to_beginning()
        rows = []
        for row in consumer:
            rows.append(row.value)
            if len(rows) == count:
                return rows
    raise AssertionError(f"{len(rows)} of {count} records")


@pytest.mark.parametrize("engine", ["loop", "thread"])
def test_records_arrive_in_their_order_with_headers(served: ServedBroker, engine: Any) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap, engine=engine) as producer:
            sent = [
                await producer.send("t", str(n), key=b"k", headers={"n": str(n)}, timestamp=n)
                for n in range(500)
            ]
            found = await asyncio.gather(*sent)
            assert [m.offset for m in found] == list(range(500))
            assert found[7].timestamp == 7 and sent[7].result() == found[7]
            assert producer.statistics().records_sent == 500 and producer.unacked() == []
        async with AsyncConsumer(bootstrap_servers=served.bootstrap, engine=engine) as consumer:
            await consumer.assign([("t", 0)])
            consumer.seek_to_beginning()
            rows = [await anext(consumer) for _ in range(500)]
        assert [r.headers for r in rows] == [[("n", str(n).encode())] for n in range(500)]

    run(work())


def test_a_task_that_waits_for_room_and_is_cancelled_has_queued_nothing(
    served: ServedBroker,
) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap, buffer_memory=4000, linger_ms=0) as producer:
            await (await producer.send("t", b"first"))
            served.close_port()
            held = [await producer.send("t", bytes(900)) for _ in range(4)]
            waiting = [asyncio.create_task(producer.send("t", f"w{n}" * 200)) for n in range(4)]
            while producer.statistics().blocked_threads < 4:
                await asyncio.sleep(0)
            with pytest.raises(BufferExhaustedError, match=r"\(4000 bytes\) is full"):
                producer.try_send("t", bytes(900))
            waiting[1].cancel()
            served.open_port()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(done[1], asyncio.CancelledError)
            siblings = [d for d in done if isinstance(d, Delivery)]
            await asyncio.gather(*held, *siblings)
            assert len(siblings) == 3

    run(work())
    assert [v[:2] for v in values(served, 8)[5:] if v is not None] == [b"w0", b"w2", b"w3"]


def test_a_wait_for_a_delivery_ends_alone(served: ServedBroker) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap, linger_ms=600_000) as producer:
            one, two = await producer.send("t", b"one"), await producer.send("t", b"two")

            async def wait(delivery: Delivery) -> int:
                return (await delivery).offset

            tasks = [asyncio.create_task(wait(d)) for d in (one, one, two)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            await producer.flush(LIMIT_MS)
            assert [await tasks[1], await tasks[2]] == [0, 1] and tasks[0].cancelled()
            assert (await one).offset == 0

    run(work())


def test_one_failed_record_cancels_no_other(served: ServedBroker) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap, max_request_size=10_000) as producer:
            good = await producer.send("t", b"good")
            with pytest.raises(MessageTooLargeError):
                await producer.send("t", bytes(20_000))
            with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 0"):
                await producer.send("t", b"v", partition=3)
            with pytest.raises(OptionError, match="value is of type int"):
                await producer.send("t", 5)  # type: ignore[arg-type]
            also = await producer.send("t", b"also")
            assert (await good).offset == 0 and (await also).offset == 1

    run(work())


def test_room_is_waited_for_up_to_max_block_ms(served: ServedBroker) -> None:
    async def work() -> None:
        options: Any = {"buffer_memory": 2000, "max_block_ms": 50}
        producer = AsyncProducer(served.bootstrap, **options)
        async with producer:
            await (await producer.send("t", b"first"))
            served.close_port()
            with pytest.raises(BufferExhaustedError, match="of 2000 bytes of buffer_memory are in"):
                for _ in range(3):
                    await producer.send("t", bytes(900))
            assert producer.statistics().blocked_threads == 0
            await producer.aclose(0)

    run(work())


def test_a_task_that_only_sends_leaves_the_loop_to_the_sender(served: ServedBroker) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap, batch_size=10_000) as producer:
            await (await producer.send("t", b"first"))
            before = producer.statistics().requests_sent
            for _ in range(100):
                await producer.send("t", bytes(1000))
            assert producer.statistics().requests_sent > before

    run(work())


def test_try_send_never_waits(served: ServedBroker) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap) as producer:
            with pytest.raises(LeaderNotAvailableError, match="metadata of t is not loaded"):
                producer.try_send("t", b"v")
            assert await producer.partitions_for("t") == 1
            called: list[Delivery] = []
            delivery = producer.try_send("t", b"v")
            delivery.add_done_callback(called.append)
            with pytest.raises(asyncio.InvalidStateError, match="await it"):
                delivery.result()
            await delivery
            await asyncio.sleep(0)
            assert called == [delivery] and delivery.exception() is None and delivery.done()

    run(work())


def test_flush_says_what_it_waits_for(served: ServedBroker) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap, buffer_memory=3000) as producer:
            await (await producer.send("t", b"first"))
            served.close_port()
            held = [await producer.send("t", bytes(900)) for _ in range(3)]
            late = asyncio.create_task(producer.send("t", b"before the flush" * 50))
            while not producer.statistics().blocked_threads:
                await asyncio.sleep(0)
            text = r"flush waits for t-0: .*leader 1.* for \d+ s.*; \d records are not acknowledged"
            with pytest.raises(KafkaTimeoutError, match=text):
                await producer.flush(300)
            rows = producer.unacked()
            assert sum(r.records for r in rows) == 3 and {r.topic for r in rows} == {"t"}
            assert all(r.state in ("not sent", "in doubt") and "leader 1" in r.cause for r in rows)
            flushing = asyncio.create_task(producer.flush(LIMIT_MS))
            await asyncio.sleep(0)
            served.open_port()
            await flushing
            assert late.done() and (await late).done(), "it came before the flush"
            assert all(d.done() for d in held) and producer.unacked() == []

    run(work())


def test_a_cancelled_flush_harms_nothing(served: ServedBroker) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap) as producer:
            await (await producer.send("t", b"first"))
            served.close_port()
            delivery = await producer.send("t", b"second")
            flushing = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            flushing.cancel()
            served.open_port()
            assert (await delivery).offset == 1

    run(work())


@pytest.mark.parametrize("engine", ["loop", "thread"])
def test_closing_drains_also_when_it_is_cancelled(served: ServedBroker, engine: Any) -> None:
    async def work() -> None:
        producer = AsyncProducer(served.bootstrap, linger_ms=600_000, engine=engine)
        await producer.start()
        delivery = await producer.send("t", b"v")
        closing = asyncio.create_task(producer.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert delivery.result().offset == 0
        with pytest.raises(ClosedError):
            await producer.send("t", b"v")
        await producer.aclose()

    run(work())


def test_what_is_left_at_the_end_of_aclose_fails(served: ServedBroker) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap) as producer:
            await (await producer.send("t", b"first"))
            served.close_port()
            delivery = await producer.send("t", b"second")
            waiting = asyncio.create_task(anyone(delivery))
            await producer.aclose(50)
            assert isinstance(delivery.exception(), ClosedError)
            with pytest.raises(ClosedError, match="closed before the record was delivered"):
                await waiting

    async def anyone(delivery: Delivery) -> None:
        await delivery

    run(work())


def test_a_producer_has_to_be_started() -> None:
    async def work() -> None:
        producer = AsyncProducer("127.0.0.1:1")
        with pytest.raises(IllegalStateError, match="not started"):
            await producer.send("t", b"v")
        await producer.aclose()

    run(work())


def test_a_table_is_sent(served: ServedBroker) -> None:
    async def work() -> None:
        async with AsyncProducer(served.bootstrap) as producer:
            table = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})
            summary = await (await producer.send_table("t", table, key="k"))
            assert (summary.rows, summary.offsets) == (3, {0: (0, 3)})
            with pytest.raises(UsageError, match="no column 'x'"):
                await producer.send_table("t", table, key="x")

    run(work())
    assert values(served, 3) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']


def test_transactions_commit_and_abort() -> None:
    async def work(broker: TransactionBroker) -> None:
        async with AsyncProducer(broker.bootstrap, transactional_id="x") as producer:
            with pytest.raises(IllegalStateError):
                await producer.send("t", b"outside")
            async with producer.transaction():
                await producer.send("t", b"one", partition=0)
            with pytest.raises(KeyError):
                async with producer.transaction():
                    gone = await producer.send("t", b"two", partition=0)
                    raise KeyError("my own")
            assert isinstance(gone.exception(), TransactionAbortedError)

            async def cancelled() -> None:
                async with producer.transaction():
                    await producer.send("t", b"three", partition=0)
                    sent.set()
                    await asyncio.sleep(LIMIT_S)

            sent = asyncio.Event()
            task = asyncio.create_task(cancelled())
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                for value in (b"four", b"five"):
                    await producer.send("t", value, partition=0)

    with TransactionBroker() as broker:
        run(work(broker))
        assert [batch.count for batch in broker.visible()] == [1, 2]


@pytest.mark.parametrize(
    ("face", "declared", "own"),
    [
        (Producer, keywords.ProducerKeywords, {"bootstrap_servers"}),
        (Consumer, keywords.ConsumerKeywords, {"bootstrap_servers", "group_id"}),
        (Admin, keywords.AdminKeywords, {"bootstrap_servers"}),
        (ShareConsumer, keywords.ShareConsumerKeywords, {"bootstrap_servers", "group_id"}),
    ],
)
def test_both_faces_have_the_same_options(face: Any, declared: Any, own: set[str]) -> None:
    parameters = inspect.signature(face).parameters.values()
    expected = {
        p.name: p.annotation
        for p in parameters
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in own
    }
    found = {n: k.__forward_arg__ for n, k in inspect.get_annotations(declared).items()}
    assert {name: kind for name, kind in found.items() if name not in SECURITY_OPTIONS} == expected


def test_wrong_options_are_named() -> None:
    with pytest.raises(OptionError, match="AsyncProducer has no option 'linger'; did you mean"):
        AsyncProducer("a:1", linger=5)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="engine is 'fork'"):
        AsyncConsumer("t", engine="fork")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="AsyncAdmin has no option"):
        AsyncAdmin("a:1", timeout=5)  # type: ignore[call-arg]
