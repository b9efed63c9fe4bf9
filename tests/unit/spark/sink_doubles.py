"""Doubles of the sink's clients: a coordinator with given answers, and leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter, Participant
from headwater.client.blocking.record_client import RecordClient
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.sink_values import SinkDescription
from headwater.records.batch import BatchHeader, read_header
from headwater.wire.epoch_values import EpochStatus
from headwater_spark.sink.connections import SinkConnections
from headwater_spark.sink.sink_options import SinkOptions, sink_options

RUN = UUID(int=7)
WRITER = EpochWriter(sink="q", owner="q", run=RUN, ticket=5, epoch=3)
GIVEN = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
PARTITIONS = 4


def description(*, run: UUID, ticket: int, last_epoch: int) -> SinkDescription:
    return SinkDescription(
        sink="q",
        owner="q",
        kind="query",
        run=run,
        ticket=ticket,
        last_epoch=last_epoch,
        last_update_ms=None,
        retired_runs=0,
        slots=0,
        coordinator=1,
        epochs=(),
    )


def participant(task: int, slot: int = 0) -> Participant:
    return Participant(
        task=task,
        slot=slot,
        producer_id=100 + slot,
        producer_epoch=9,
        transactional_id=f"__hw.q.{slot}",
        heartbeat_interval_s=12.0,
    )


@dataclass
class FakeEpochClient:
    """Records calls; `committed` answers joins with COMMITTED."""

    committed: bool = False
    status: EpochStatus = EpochStatus.OPEN
    error: Exception | None = None
    description: SinkDescription | None = None
    tickets: int = 0
    joins: list[tuple[EpochWriter, int, int, dict[str, list[int]]]] = field(default_factory=list)
    commits: list[tuple[EpochWriter, list[Participant]]] = field(default_factory=list)
    aborts: list[EpochWriter] = field(default_factory=list)
    closed: int = 0

    def allocate_ticket(self) -> int:
        self.tickets += 1
        return self.tickets

    def join(
        self,
        writer: EpochWriter,
        *,
        task: int,
        attempt: int,
        topics: Mapping[str, Sequence[int]],
    ) -> Participant | None:
        self.joins.append((writer, task, attempt, {t: list(p) for t, p in topics.items()}))
        return None if self.committed else participant(task, slot=task)

    def commit(self, writer: EpochWriter, participants: Sequence[Participant]) -> bool:
        if self.error is not None:
            raise self.error
        self.commits.append((writer, list(participants)))
        return True

    def abort(self, writer: EpochWriter) -> EpochStatus:
        self.aborts.append(writer)
        if self.error is not None:
            raise self.error
        return self.status

    def describe(self, sink: str) -> SinkDescription | None:
        return self.description

    def heartbeat(self, writer: EpochWriter) -> EpochStatus:
        if self.error is not None:
            raise self.error
        return self.status

    def close(self) -> None:
        self.closed += 1

    def as_client(self) -> EpochClient:
        return cast(EpochClient, self)


@dataclass
class FakeLeaders:
    """All record clients of one set of connections."""

    error: Exception | None = None
    produced: list[tuple[str, int, BatchHeader, str | None]] = field(default_factory=list)
    producer_ids: int = 0
    metadata_calls: int = 0
    closed: int = 0

    def metadata(self, topics: Sequence[str]) -> dict[str, Any]:
        self.metadata_calls += 1
        if "t" not in topics and "u" not in topics:
            raise UnknownTopicOrPartitionError(topics[0])
        return {topic: SimpleNamespace(partitions=(None,) * PARTITIONS) for topic in topics}

    def new_producer_id(self) -> tuple[int, int]:
        self.producer_ids += 1
        return 55, 0

    def produce_batch(
        self, topic: str, partition: int, batches: memoryview, *, transactional_id: str | None
    ) -> int:
        if self.error is not None:
            raise self.error
        self.produced.append((topic, partition, read_header(batches), transactional_id))
        return 0

    def close(self) -> None:
        self.closed += 1

    def as_client(self) -> RecordClient:
        return cast(RecordClient, self)


class FakeCluster:
    """A coordinator and leaders, and connections to them."""

    def __init__(self, options: SinkOptions | None = None) -> None:
        self.options = options or sink_options(GIVEN)
        self.coordinator = FakeEpochClient()
        self.leaders = FakeLeaders()
        self.connections = SinkConnections(
            self.options,
            new_record_client=lambda *_args, **_kw: self.leaders.as_client(),
            new_epoch_client=lambda *_args, **_kw: self.coordinator.as_client(),
        )
