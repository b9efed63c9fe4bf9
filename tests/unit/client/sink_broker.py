"""A served broker with a topic, and epochs that a test writes to it as Spark does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter, Participant
from headwater.client.blocking.record_client import RecordClient
from headwater.columnar.encode import encode_rows
from headwater.topic_names import TRANSACTION_TOPIC
from unit.client.served_broker import ServedBroker

RUN = UUID(int=0xA)
TOPIC = "flights"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path, transaction_state_log_num_partitions="2") as broker:
        broker.do(lambda b: b.create_topic(TRANSACTION_TOPIC, 2))
        broker.do(lambda b: b.create_topic(TOPIC, 2))
        yield broker


@pytest.fixture
def client(served: ServedBroker) -> Iterator[EpochClient]:
    with EpochClient(served.bootstrap) as found:
        yield found


def writer_of(client: EpochClient, epoch: int, sink: str = "alerts") -> EpochWriter:
    """The writer of an epoch, with a new ticket."""
    return EpochWriter(sink, "query", RUN, client.allocate_ticket(), epoch)


def written(
    served: ServedBroker, client: EpochClient, writer: EpochWriter, tasks: int = 2
) -> list[Participant]:
    """Tasks that have joined and written one record each."""
    joined = []
    with RecordClient(served.bootstrap) as records:
        for task in range(tasks):
            participant = client.join(writer, task=task, attempt=task)
            assert participant is not None
            produce(records, participant, task % 2)
            joined.append(participant)
    return joined


def produce(records: RecordClient, participant: Participant, partition: int) -> int:
    """One record of a participant; its offset."""
    [batch] = encode_rows(
        key=None,
        value=pa.array([b"row"]),
        timestamps_ms=1_000,
        producer_id=participant.producer_id,
        producer_epoch=participant.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    return records.produce_batch(
        TOPIC, partition, batch.data, transactional_id=participant.transactional_id
    )
