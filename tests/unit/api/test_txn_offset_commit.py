"""TxnOffsetCommit over the wire: verification, versions, rights, outcomes per partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k22_init_producer_id as k22
from headwater.wire.apis import k25_add_offsets_to_txn as k25
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.apis import k28_txn_offset_commit as k28
from headwater_broker.api.k28_txn_offset_commit import client_code
from solo_broker import SoloBroker
from unit.api.test_offset_requests import commit
from unit.network.test_data_plane import serve

VERSIONS = range(7)
ADDS_ITSELF = 5
METADATA_MAX = 10
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@dataclass
class Producer:
    """A transactional producer of raw requests, and the group `g`."""

    connection: Connection
    broker: SoloBroker
    version: int
    producer_id: int = -1
    epoch: int = -1

    async def begin(self, *, adds_offsets: bool = True) -> None:
        """InitProducerId and, before version 5, AddOffsetsToTxn."""
        request = k22.InitProducerIdRequest(transactional_id="app", transaction_timeout_ms=60_000)
        reply = await self.connection.call(request, k22.InitProducerIdResponse, version=4)
        assert reply.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        if adds_offsets and self.version < ADDS_ITSELF:
            await self.add_offsets()

    async def add_offsets(self) -> None:
        request = k25.AddOffsetsToTxnRequest(
            transactional_id="app",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id="g",
        )
        reply = await self.connection.call(request, k25.AddOffsetsToTxnResponse, version=3)
        assert reply.error_code == ErrorCode.NONE

    async def commit(
        self,
        *rows: tuple[str, int, str],
        epoch: int | None = None,
        generation: int = -1,
        group_id: str = "g",
    ) -> list[int]:
        """A TxnOffsetCommit of (topic, partition, metadata); the codes."""
        topics = tuple(
            k28.TxnOffsetCommitRequestTopic(
                name=topic,
                topic_id=self.topic_id(topic),
                partitions=(
                    k28.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=9, committed_metadata=metadata
                    ),
                ),
            )
            for topic, index, metadata in rows or (("t", 0, ""),)
        )
        request = k28.TxnOffsetCommitRequest(
            transactional_id="app",
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            generation_id=generation if self.version >= 3 else -1,
            topics=topics,
        )
        reply = await self.connection.call(
            request, k28.TxnOffsetCommitResponse, version=self.version
        )
        if self.version >= 6:
            assert [t.topic_id for t in reply.topics] == [t.topic_id for t in topics]
        else:
            assert [t.name for t in reply.topics] == [t.name for t in topics]
        return [p.error_code for t in reply.topics for p in t.partitions]

    async def end(self, *, commit: bool) -> None:
        """EndTxn of the producer's transaction version; the markers are written when it returns."""
        request = k26.EndTxnRequest(
            transactional_id="app",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        version = 5 if self.version >= ADDS_ITSELF else 4
        reply = await self.connection.call(request, k26.EndTxnResponse, version=version)
        assert reply.error_code == ErrorCode.NONE
        while (await fetched(self.connection, 8, require_stable=True))[1]:
            await asyncio.sleep(0)

    def topic_id(self, topic: str) -> UUID:
        known = self.broker.view.topics.get(topic)
        return UUID(int=404) if known is None else known.topic_id


Story = Callable[[SoloBroker, Producer], Awaitable[None]]


def play(folder: Path, version: int, story: Story, authorizer: AllowAll | None = None) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC):
            broker.create_topic(topic, 1)
        broker.create_topic("t", 2)
        await story(broker, Producer(c, broker, version))

    limit = str(METADATA_MAX)
    serve(folder, scenario, authorizer=authorizer, offset_metadata_max_bytes=limit)


async def fetched(c: Connection, version: int, *, require_stable: bool) -> tuple[int, int]:
    """The offset of t-0 and its error; all offsets of the group hold the same."""
    answers = []
    for wanted in ((0,), None):
        named = (k09.OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),)
        request = k09.OffsetFetchRequest(
            group_id="g",
            topics=None if wanted is None else named,
            require_stable=require_stable,
        )
        if version >= 8:
            group = k09.OffsetFetchRequestGroup(
                group_id="g",
                topics=None
                if wanted is None
                else (k09.OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),),
            )
            request = k09.OffsetFetchRequest(groups=(group,), require_stable=require_stable)
        reply = await c.call(request, k09.OffsetFetchResponse, version=version)
        rows = [
            (p.committed_offset, p.error_code)
            for group_ in (reply.groups if version >= 8 else (reply,))
            for t in group_.topics
            for p in t.partitions
        ]
        answers.append(rows)
    assert answers[0] == answers[1]
    [answer] = answers[0]
    return answer


@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_of_an_open_transaction_is_unstable(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, p: Producer) -> None:
        assert await commit(p.connection, ("t", 0, 3, "")) == {("t", 0): 0}
        await p.begin()
        assert await p.commit() == [ErrorCode.NONE]
        unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        for fetch_version in (7, 8, 9):
            stable = await fetched(p.connection, fetch_version, require_stable=True)
            any_offset = await fetched(p.connection, fetch_version, require_stable=False)
            assert (stable, any_offset) == (unstable, (3, 0))

    play(tmp_path, version, story)


@pytest.mark.parametrize("commit_it", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_it_counts_when_its_transaction_commits(
    tmp_path: Path, version: int, *, commit_it: bool
) -> None:
    async def story(broker: SoloBroker, p: Producer) -> None:
        assert await commit(p.connection, ("t", 0, 3, "")) == {("t", 0): 0}
        await p.begin()
        assert await p.commit() == [ErrorCode.NONE]
        await p.end(commit=commit_it)
        wanted = 9 if commit_it else 3
        assert await fetched(p.connection, 8, require_stable=True) == (wanted, 0)

    play(tmp_path, version, story)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_that_was_not_added_is_refused_before_version_5(
    tmp_path: Path, version: int
) -> None:
    async def story(broker: SoloBroker, p: Producer) -> None:
        await p.begin(adds_offsets=False)
        code = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        assert await p.commit() == [code if version < ADDS_ITSELF else ErrorCode.NONE]
        await p.add_offsets()
        assert await p.commit() == [ErrorCode.NONE]

    play(tmp_path, version, story)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("bump", [-1, 1])
def test_another_epoch_is_refused(tmp_path: Path, version: int, bump: int) -> None:
    async def story(broker: SoloBroker, p: Producer) -> None:
        await p.begin()
        refused = [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await p.commit(epoch=p.epoch + bump) == refused, "by the transaction coordinator"
        assert await p.commit() == [ErrorCode.NONE]
        assert await p.commit(epoch=p.epoch + bump) == refused

    play(tmp_path, version, story)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_committed_is_refused_alone(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, p: Producer) -> None:
        await p.begin()
        long = "x" * (METADATA_MAX + 1)
        rows = (("t", 0, "note"), ("t", 1, long), ("t", 2, ""), ("nope", 0, ""))
        unknown_topic = ErrorCode.UNKNOWN_TOPIC_ID if version >= 6 else UNKNOWN
        codes = [0, ErrorCode.OFFSET_METADATA_TOO_LARGE, UNKNOWN, unknown_topic]
        assert await p.commit(*rows) == codes
        assert await p.commit(("t", 2, "")) == [UNKNOWN], "without asking a coordinator"

    play(tmp_path, version, story)


@pytest.mark.parametrize("version", range(3, 7))
def test_a_generation_of_an_unknown_group_is_refused(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, p: Producer) -> None:
        await p.begin()
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.ILLEGAL_GENERATION
        rows = (("t", 0, ""), ("t", 2, ""))
        assert await p.commit(*rows, generation=1) == [code, UNKNOWN]

    play(tmp_path, version, story)


class Denies(AllowAll):
    """Denies one operation on one type of resource."""

    def __init__(self, operation: Operation, resource: ResourceType) -> None:
        self._denied = operation, resource
        self._is_on = False
        self.generation = 0

    def switch(self, *, on: bool) -> None:
        self._is_on = on
        self.generation += 1

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return not self._is_on or (operation, resource) != self._denied


@pytest.mark.parametrize("version", [0, 5, 6])
@pytest.mark.parametrize(
    ("operation", "resource", "codes"),
    [
        (
            Operation.WRITE,
            ResourceType.TRANSACTIONAL_ID,
            [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2,
        ),
        (Operation.READ, ResourceType.GROUP, [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2),
        (Operation.READ, ResourceType.TOPIC, [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2),
    ],
)
def test_it_needs_rights_to_the_transaction_the_group_and_the_topics(
    tmp_path: Path, version: int, operation: Operation, resource: ResourceType, codes: list[int]
) -> None:
    acls = Denies(operation, resource)

    async def story(broker: SoloBroker, p: Producer) -> None:
        await p.begin()
        acls.switch(on=True)
        assert await p.commit(("t", 0, ""), ("t", 2, "")) == codes
        acls.switch(on=False)
        assert await p.commit() == [ErrorCode.NONE]

    play(tmp_path, version, story, authorizer=acls)


E_ = ErrorCode


@pytest.mark.parametrize(
    ("code", "by_version"),
    [
        (E_.NONE, {0: E_.NONE, 6: E_.NONE}),
        (E_.PRODUCER_FENCED, dict.fromkeys(VERSIONS, E_.INVALID_PRODUCER_EPOCH)),
        (E_.TRANSACTION_ABORTABLE, {3: E_.INVALID_TXN_STATE, 4: E_.TRANSACTION_ABORTABLE}),
        (E_.GROUP_ID_NOT_FOUND, {5: E_.ILLEGAL_GENERATION, 6: E_.GROUP_ID_NOT_FOUND}),
        (
            E_.COORDINATOR_LOAD_IN_PROGRESS,
            {1: E_.COORDINATOR_NOT_AVAILABLE, 2: E_.COORDINATOR_LOAD_IN_PROGRESS},
        ),
        (
            E_.CONCURRENT_TRANSACTIONS,
            {
                1: E_.COORDINATOR_NOT_AVAILABLE,
                4: E_.COORDINATOR_LOAD_IN_PROGRESS,
                5: E_.CONCURRENT_TRANSACTIONS,
            },
        ),
        (
            E_.NETWORK_EXCEPTION,
            {1: E_.COORDINATOR_NOT_AVAILABLE, 5: E_.COORDINATOR_LOAD_IN_PROGRESS},
        ),
        (E_.INVALID_TXN_STATE, {0: E_.INVALID_TXN_STATE, 6: E_.INVALID_TXN_STATE}),
    ],
)
def test_each_version_gets_codes_that_its_clients_know(
    code: ErrorCode, by_version: dict[int, ErrorCode]
) -> None:
    assert {version: client_code(code, version) for version in by_version} == by_version
