"""Who asks for a transaction is told at once that there are none: no client may wait for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
import pytest

from integration.cluster import LocalCluster

AT_ONCE_S = 20.0


def _librdkafka(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "rd"})
    try:
        producer.init_transactions(60)
    except confluent_kafka.KafkaException as error:
        assert error.args[0].fatal() and not error.args[0].retriable(), error
        assert "Headwater has no transactions" in str(error)
        raise


def _kafka_python(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="kp")
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=1)


def _aiokafka(bootstrap: str) -> None:
    async def begin() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aio")
        await producer.start()
        try:
            await producer.begin_transaction()
        finally:
            await producer.stop()

    asyncio.run(begin())


@pytest.mark.parametrize("begin", [_librdkafka, _kafka_python, _aiokafka])
def test_a_transactional_producer_is_refused_at_once(
    shared_cluster: LocalCluster, begin: Callable[[str], None]
) -> None:
    started = time.monotonic()
    with pytest.raises(Exception, match=r"(?i)transactional ?id ?authorization"):
        begin(shared_cluster.bootstrap)
    assert time.monotonic() - started < AT_ONCE_S
