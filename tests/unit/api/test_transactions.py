"""Transactions over the wire: each request, its rights, and the codes of each version."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k18_api_versions as k18
from headwater.wire.apis import k22_init_producer_id as k22
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k25_add_offsets_to_txn as k25
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.apis import k65_describe_transactions as k65
from headwater.wire.apis import k66_list_transactions as k66
from headwater.wire.described_transactions import (
    DescribedTransaction,
    DescribedTransactionsResponse,
)
from solo_broker import SoloBroker
from unit.network.test_data_plane import serve

E = ErrorCode
Story = Callable[[SoloBroker, Connection], Awaitable[None]]
SMALL = {"transaction_state_log_num_partitions": "2"}
TRANSACTIONAL_ID = 1


class Acls(AllowAll):
    """Allows everything but the pairs in `denied`."""

    def __init__(self, *denied: tuple[Operation, ResourceType]) -> None:
        self._denied = frozenset(denied)

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (operation, resource) not in self._denied


def tell(tmp_path: Path, story: Story, *, acls: Acls | None = None, **properties: str) -> None:
    async def with_topics(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        broker.create_topic("flights", 2)
        await story(broker, c)

    serve(tmp_path, with_topics, authorizer=acls or AllowAll(), **SMALL, **properties)


async def init(
    c: Connection,
    transactional_id: str = "t",
    *,
    timeout_ms: int = 60_000,
    producer: tuple[int, int] = (-1, -1),
    version: int = 5,
    **two_phase: bool,
) -> k22.InitProducerIdResponse:
    request = k22.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
        **two_phase,
    )
    return await c.call(request, k22.InitProducerIdResponse, version=version)


async def producer_of(c: Connection, transactional_id: str = "t") -> tuple[int, int]:
    reply = await init(c, transactional_id)
    assert reply.error_code == E.NONE
    return reply.producer_id, reply.producer_epoch


def topics(*partitions: tuple[str, int]) -> tuple[k24.AddPartitionsToTxnTopic, ...]:
    return tuple(
        k24.AddPartitionsToTxnTopic(name=topic, partitions=(index,)) for topic, index in partitions
    )


async def add(
    c: Connection,
    producer: tuple[int, int],
    *partitions: tuple[str, int],
    transactional_id: str = "t",
    version: int = 3,
) -> list[ErrorCode]:
    request = k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=topics(*(partitions or (("flights", 0),))),
    )
    reply = await c.call(request, k24.AddPartitionsToTxnResponse, version=version)
    return codes(reply.results_by_topic_v3_and_below)


def codes(rows: tuple[k24.AddPartitionsToTxnTopicResult, ...]) -> list[ErrorCode]:
    return [
        ErrorCode(row.partition_error_code) for topic in rows for row in topic.results_by_partition
    ]


async def end(
    c: Connection, producer: tuple[int, int], *, commit: bool = True, version: int = 5
) -> k26.EndTxnResponse:
    request = k26.EndTxnRequest(
        transactional_id="t",
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=commit,
    )
    return await c.call(request, k26.EndTxnResponse, version=version)


async def described(c: Connection, *names: str) -> tuple[DescribedTransaction, ...]:
    request = k65.DescribeTransactionsRequest(transactional_ids=names)
    reply = await c.call(request, DescribedTransactionsResponse, version=0)
    return reply.transaction_states


async def listed(c: Connection, **filters: object) -> k66.ListTransactionsResponse:
    request = dataclasses.replace(k66.ListTransactionsRequest(), **filters)  # type: ignore[arg-type]
    return await c.call(request, k66.ListTransactionsResponse, version=2)


async def settled(broker: SoloBroker) -> None:
    """No marker is on its way."""
    while any(broker.services.transactions.markers.pending):
        await asyncio.sleep(0.001)


def test_a_transaction_is_begun_described_and_ended(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        assert producer[1] == 0
        assert await add(c, producer, ("flights", 0), ("flights", 1)) == [E.NONE, E.NONE]
        row, missing = await described(c, "t", "unknown")
        assert (row.transaction_state, row.producer_id) == ("Ongoing", producer[0])
        assert row.topics == (k65.TopicData(topic="flights", partitions=(0, 1)),)
        assert (row.principal, row.client_host) == ("User:ANONYMOUS", "127.0.0.1")
        assert missing.error_code == E.TRANSACTIONAL_ID_NOT_FOUND
        reply = await end(c, producer)
        assert reply.error_code == E.NONE
        assert (reply.producer_id, reply.producer_epoch) == (producer[0], 1)
        repeated = await end(c, producer)
        assert (repeated.error_code, repeated.producer_epoch) == (E.NONE, 1)
        await settled(broker)
        (row,) = await described(c, "t")
        assert (row.transaction_state, row.topics) == ("CompleteCommit", ())
        ends = [broker.services.hosted("flights", i).high_watermark for i in (0, 1)]
        assert ends == [1, 1], "the markers"

    tell(tmp_path, story)


def test_the_coordinator_is_found_and_its_topic_created(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        keys = ("t", "__hw.sink.0", "")
        request = k10.FindCoordinatorRequest(key_type=TRANSACTIONAL_ID, coordinator_keys=keys)
        reply = await c.call(request, k10.FindCoordinatorResponse, version=4)
        assert [row.error_code for row in reply.coordinators] == [
            E.NONE,
            E.NONE,
            E.INVALID_REQUEST,
        ], "the participant of a sink has its sink's coordinator"
        assert reply.coordinators[0].node_id == 1
        made = broker.view.topics[TRANSACTION_TOPIC]
        assert len(made.partitions) == 2
        assert made.configs["cleanup.policy"] == "compact"
        assert made.configs["min.insync.replicas"] == "1", "no more than there are replicas"
        assert made.configs["unclean.leader.election.enable"] == "false"

    serve(tmp_path, story, transaction_state_log_replication_factor="1", **SMALL)


def test_a_newer_producer_fences_the_older_one(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        old = await producer_of(c)
        new = await producer_of(c)
        assert new == (old[0], old[1] + 1)
        assert await add(c, old, version=3) == [E.PRODUCER_FENCED]
        assert await add(c, old, version=1) == [E.INVALID_PRODUCER_EPOCH]
        assert (await end(c, old, version=5)).error_code == E.PRODUCER_FENCED
        assert (await end(c, old, version=1)).error_code == E.INVALID_PRODUCER_EPOCH
        assert (await init(c, producer=old, version=4)).error_code == E.PRODUCER_FENCED
        assert (await init(c, producer=old, version=3)).error_code == E.INVALID_PRODUCER_EPOCH
        assert await add(c, (new[0] + 7, 0)) == [E.INVALID_PRODUCER_ID_MAPPING]
        assert (await end(c, (new[0] + 7, 0))).error_code == E.INVALID_PRODUCER_ID_MAPPING

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"producer": (4, -1)}, E.INVALID_REQUEST),
        ({"producer": (-1, 4)}, E.INVALID_REQUEST),
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"transactional_id": "x" * 32_768}, E.INVALID_REQUEST),
        ({"transactional_id": "\u2603" * 10_923}, E.INVALID_REQUEST),
        ({"transactional_id": "__hw.s.1"}, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"version": 6}, E.UNSUPPORTED_VERSION),
    ],
)
def test_bad_inits_are_refused(
    tmp_path: Path, request_: dict[str, object], code: ErrorCode
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        reply = await init(c, **request_)  # type: ignore[arg-type]
        assert reply.error_code == code
        assert (reply.producer_id, reply.producer_epoch) == (-1, -1)

    tell(tmp_path, story)


def test_the_longest_id_that_a_record_holds_is_served(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        assert (await init(c, transactional_id="\u2603" * 10_922)).error_code == E.NONE

    tell(tmp_path, story)


def test_a_partition_that_cannot_be_added_spoils_the_request(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        assert await add(c, producer, ("flights", 0), ("none", 0), (OFFSETS_TOPIC, 0)) == [
            E.OPERATION_NOT_ATTEMPTED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.TOPIC_AUTHORIZATION_FAILED,
        ]
        assert (await described(c, "t"))[0].transaction_state == "Empty"

    tell(tmp_path, story)


def test_rights_are_asked_for_before_anything_else(tmp_path: Path) -> None:
    acls = Acls(
        (Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
        (Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
    )
    refused = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    async def story(broker: SoloBroker, c: Connection) -> None:
        assert (await init(c)).error_code == refused
        assert await add(c, (0, 0)) == [refused]
        assert (await end(c, (0, 0))).error_code == refused
        request = k25.AddOffsetsToTxnRequest(transactional_id="t", group_id="g")
        assert (await c.call(request, k25.AddOffsetsToTxnResponse)).error_code == refused
        assert (await described(c, "t"))[0].error_code == refused
        of_brokers = k24.AddPartitionsToTxnRequest()
        reply = await c.call(of_brokers, k24.AddPartitionsToTxnResponse, version=4)
        assert reply.error_code == E.CLUSTER_AUTHORIZATION_FAILED

    tell(tmp_path, story, acls=acls)


def test_offsets_need_the_right_to_read_the_group(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        request = k25.AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], group_id="g"
        )
        reply = await c.call(request, k25.AddOffsetsToTxnResponse)
        assert reply.error_code == E.GROUP_AUTHORIZATION_FAILED

    tell(tmp_path, story, acls=Acls((Operation.READ, ResourceType.GROUP)))


def test_the_groups_partition_is_enlisted(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        request = k25.AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], group_id="g"
        )
        reply = await c.call(request, k25.AddOffsetsToTxnResponse)
        assert reply.error_code == E.NONE, "the topic was created"
        row = (await described(c, "t"))[0]
        partition = broker.services.groups.coordinator.partition_of("g")
        assert row.topics == (k65.TopicData(topic=OFFSETS_TOPIC, partitions=(partition,)),)

    tell(tmp_path, story)


def test_brokers_enlist_and_verify_for_many_ids_at_once(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        one, other = await producer_of(c, "one"), await producer_of(c, "other")
        await add(c, one, transactional_id="one")

        def row(
            name: str, producer: tuple[int, int], index: int, *, verify_only: bool
        ) -> k24.AddPartitionsToTxnTransaction:
            return k24.AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=topics(("flights", index)),
            )

        request = k24.AddPartitionsToTxnRequest(
            transactions=(
                row("one", one, 0, verify_only=True),
                row("one", one, 1, verify_only=True),
                row("other", other, 1, verify_only=False),
                row("none", other, 1, verify_only=False),
                row("other", (other[0], 5), 1, verify_only=True),
            )
        )
        reply = await c.call(request, k24.AddPartitionsToTxnResponse, version=5)
        assert [codes(found.topic_results) for found in reply.results_by_transaction] == [
            [E.NONE],
            [E.TRANSACTION_ABORTABLE],
            [E.NONE],
            [E.INVALID_PRODUCER_ID_MAPPING],
            [E.PRODUCER_FENCED],
        ]

    tell(tmp_path, story)


def test_transactions_are_listed_by_state_producer_age_and_pattern(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producers = {name: await producer_of(c, name) for name in ("copy-1", "copy-2", "t")}
        await add(c, producers["t"])

        async def names(**filters: object) -> set[str]:
            reply = await listed(c, **filters)
            assert reply.error_code == E.NONE
            return {row.transactional_id for row in reply.transaction_states}

        assert await names() == {"copy-1", "copy-2", "t"}
        assert await names(state_filters=("Ongoing",)) == {"t"}
        assert await names(producer_id_filters=(producers["copy-2"][0],)) == {"copy-2"}
        assert await names(transactional_id_pattern="copy-.*") == {"copy-1", "copy-2"}
        assert await names(transactional_id_pattern="copy") == set(), "all of the id matches"
        long_open = {"state_filters": ("Ongoing",), "duration_filter": 3_600_000}
        assert await names(**long_open) == set()
        unknown = await listed(c, state_filters=("Sleeping",))
        assert unknown.unknown_state_filters == ("Sleeping",)
        assert unknown.transaction_states == ()
        for pattern in ("(", "a)|(b"):
            bad = await listed(c, transactional_id_pattern=pattern)
            assert bad.error_code == E.INVALID_REGULAR_EXPRESSION

    tell(tmp_path, story)


def test_only_what_may_be_described_is_listed(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        await producer_of(c)
        assert (await listed(c)).transaction_states == ()

    tell(tmp_path, story, acls=Acls((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)))


def test_the_second_transaction_version_is_finalized(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        request = k18.ApiVersionsRequest(client_software_name="x", client_software_version="1")
        for version in (3, 4):
            reply = await c.call(request, k18.ApiVersionsResponse, version=version)
            levels = {f.name: f.max_version_level for f in reply.finalized_features}
            assert levels["transaction.version"] == 2
            assert reply.finalized_features_epoch >= 0
            assert len(reply.supported_features) == (len(levels) if version == 4 else 0)
            highest = {row.api_key: row.max_version for row in reply.api_keys}
            assert highest[22] == 5, "version 6 has to be enabled"

    tell(tmp_path, story)


TWO_PHASE = {"transaction_two_phase_commit_enable": "true"}


def test_a_prepared_transaction_is_kept_and_committed_by_the_next_producer(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        first = await init(c, version=6, enable2_pc=True)
        old = (first.producer_id, first.producer_epoch)
        assert first.ongoing_txn_producer_id == -1
        await add(c, old)
        kept = await init(c, version=6, enable2_pc=True, keep_prepared_txn=True)
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == old
        new = (kept.producer_id, kept.producer_epoch)
        assert new == (old[0], old[1] + 1)
        assert (await end(c, old)).error_code == E.PRODUCER_FENCED
        assert await add(c, new) == [E.INVALID_TXN_STATE]
        ended = await end(c, new)
        assert (ended.error_code, ended.producer_epoch) == (E.NONE, new[1] + 1)
        again = await end(c, new)
        assert (again.error_code, again.producer_epoch) == (E.NONE, new[1] + 1)

    tell(tmp_path, story, **TWO_PHASE)


def test_two_phases_need_their_own_right(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        refused = await init(c, version=6, enable2_pc=True)
        assert refused.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await init(c, version=6)).error_code == E.NONE
        mixed = await init(c, version=6, keep_prepared_txn=True)
        assert mixed.error_code == E.INVALID_REQUEST

    acls = Acls((Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID))
    tell(tmp_path, story, acls=acls, **TWO_PHASE)
