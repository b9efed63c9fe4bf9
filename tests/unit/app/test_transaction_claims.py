"""Which coordinators are asked for a producer id, and what one that does not answer means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.apis.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from headwater.wire.apis.k65_describe_transactions import TransactionState as DescribedState
from headwater.wire.apis.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from headwater_broker.app.transaction_claims import TransactionClaims

HERE = 1
PRODUCER = 77


class Peers:
    """Brokers other than this one: transactional id -> its partitions, or an error."""

    def __init__(self, **brokers: dict[str, tuple[int, ...]] | Exception | ErrorCode) -> None:
        self.brokers = {int(name[1:]): told for name, told in brokers.items()}
        self.asked: list[tuple[int, str]] = []

    async def call(self, broker_id: int, request: Any, version: int, _reply: Any) -> Any:
        self.asked.append((broker_id, type(request).__name__))
        told = self.brokers[broker_id]
        if isinstance(told, Exception):
            raise told
        if isinstance(request, ListTransactionsRequest):
            assert request.producer_id_filters == (PRODUCER,)
            assert set(request.state_filters) == {"Ongoing", "PrepareCommit", "PrepareAbort"}
            if isinstance(told, ErrorCode):
                return ListTransactionsResponse(error_code=told)
            rows = tuple(TransactionState(transactional_id=name) for name in told)
            return ListTransactionsResponse(transaction_states=rows)
        assert isinstance(request, DescribeTransactionsRequest)
        assert not isinstance(told, ErrorCode)
        return DescribeTransactionsResponse(
            transaction_states=tuple(
                DescribedState(
                    transactional_id=name,
                    topics=(TopicData(topic="t", partitions=told[name]),),
                )
                for name in request.transactional_ids
            )
        )


def claims(
    peers: Peers,
    here: Iterable[int] | KafkaError = (),
    leaders: tuple[int, ...] = (1, 2),
    *,
    is_complete: bool = True,
) -> TransactionClaims:
    async def listed(_states: object, producer_ids: object) -> list[Any]:
        assert producer_ids == {PRODUCER}
        if isinstance(here, KafkaError):
            raise here
        return [SimpleNamespace(partitions={("t", index): None for index in here})]

    states = {n: SimpleNamespace(partition=n, leader_id=leader) for n, leader in enumerate(leaders)}
    view = SimpleNamespace(
        is_complete=is_complete,
        brokers=dict.fromkeys((HERE, *peers.brokers)),
        topics={TRANSACTION_TOPIC: SimpleNamespace(partitions=states)},
    )
    transactions = SimpleNamespace(listed=listed)
    return TransactionClaims(HERE, cast(Any, view), cast(Any, transactions), cast(Any, peers))


def found(asked: TransactionClaims) -> frozenset[tuple[str, int]]:
    return asyncio.run(asked.partitions_of(PRODUCER))


def test_the_partitions_of_all_coordinators_are_joined() -> None:
    peers = Peers(b2={"pay": (3, 4)}, b3={})
    assert found(claims(peers, here=(1,))) == {("t", 1), ("t", 3), ("t", 4)}
    assert sorted(peers.asked) == [
        (2, "DescribeTransactionsRequest"),
        (2, "ListTransactionsRequest"),
        (3, "ListTransactionsRequest"),
    ]


def test_a_producer_that_no_coordinator_knows_claims_nothing() -> None:
    assert found(claims(Peers(b2={}))) == frozenset()


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ConnectionError("refused"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (TimeoutError(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_coordinator_that_does_not_answer_may_have_it(
    told: Exception | ErrorCode, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as error:
        found(claims(Peers(b2={}, b3=told)))
    assert error.value.code is code


def test_a_coordinator_here_that_loads_may_have_it() -> None:
    loading = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loads")
    with pytest.raises(KafkaError) as error:
        found(claims(Peers(b2={}), here=loading))
    assert error.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_coordinator_without_a_broker_may_have_it() -> None:
    for leader in (-1, 9):
        with pytest.raises(KafkaError, match=f"{TRANSACTION_TOPIC}-1 has no leader") as error:
            found(claims(Peers(b2={}), leaders=(1, leader)))
        assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_incomplete_metadata_rules_no_transaction_out() -> None:
    with pytest.raises(KafkaError, match="not complete") as caught:
        asyncio.run(claims(Peers(), leaders=(), is_complete=False).partitions_of(PRODUCER))
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
