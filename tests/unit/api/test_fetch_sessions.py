"""Fetch sessions (KIP-227): epochs, changes, rotation, eviction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from headwater_broker.api.api_config import FETCH_SESSION_EVICTION_MS
from headwater_broker.api.fetch_session.cache import (
    EPOCH_MAX,
    FetchSession,
    FetchSessionCache,
)
from headwater_broker.api.fetch_session.partition import FetchItem
from solo_broker import SoloBroker
from unit.network.test_data_plane import serve


def cache(slots: int = 10) -> tuple[FetchSessionCache, ManualClock]:
    clock = ManualClock()
    return FetchSessionCache(slots, clock, SeededEntropy()), clock


def items(*partitions: int) -> list[FetchItem]:
    return [FetchItem("t", p, 0, 1000) for p in partitions]


def opened(sessions: FetchSessionCache, *partitions: int, follower: bool = False) -> FetchSession:
    session = sessions.create(items(*partitions), uses_topic_ids=False, is_follower=follower)
    assert session is not None
    return session


def test_epochs_must_follow_one_another() -> None:
    sessions, _ = cache()
    session = opened(sessions, 0)
    assert sessions.continue_session(session.session_id, 1, uses_topic_ids=False) is session
    with pytest.raises(KafkaError) as caught:
        sessions.continue_session(session.session_id, 1, uses_topic_ids=False)
    assert caught.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.continue_session(session.session_id, 2, uses_topic_ids=False)


def test_the_epoch_wraps_to_one() -> None:
    sessions, _ = cache()
    session = opened(sessions, 0)
    session.epoch = EPOCH_MAX
    sessions.continue_session(session.session_id, EPOCH_MAX, uses_topic_ids=False)
    assert session.epoch == 1


def test_an_unknown_session_and_a_change_of_topic_naming_are_told_apart() -> None:
    sessions, _ = cache()
    session = opened(sessions, 0)
    with pytest.raises(KafkaError) as unknown:
        sessions.continue_session(session.session_id + 1, 1, uses_topic_ids=False)
    assert unknown.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(KafkaError) as mixed:
        sessions.continue_session(session.session_id, 1, uses_topic_ids=True)
    assert mixed.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_changes_keep_order_and_what_was_sent() -> None:
    sessions, _ = cache()
    session = opened(sessions, 0, 1, 2)
    session.items[("t", 1)].sent_high_watermark = 42
    session.apply([FetchItem("t", 1, 99, 500), FetchItem("t", 7, 0, 1)], [("t", 0), ("t", 55)])
    assert [i.partition for i in session.items.values()] == [1, 2, 7]
    changed = session.items[("t", 1)]
    assert (changed.fetch_offset, changed.max_bytes, changed.sent_high_watermark) == (99, 500, 42)


def test_a_partition_that_sent_data_goes_behind_the_others() -> None:
    sessions, _ = cache()
    session = opened(sessions, 0, 1, 2)
    session.rotate(session.items[("t", 0)])
    assert [i.partition for i in session.items.values()] == [1, 2, 0]


def test_a_full_cache_gives_no_session_until_one_is_stale() -> None:
    sessions, clock = cache(slots=2)
    first, second = opened(sessions, 0), opened(sessions, 1)
    assert sessions.create(items(2), uses_topic_ids=False, is_follower=False) is None
    clock.advance(FETCH_SESSION_EVICTION_MS + 1)
    sessions.continue_session(first.session_id, 1, uses_topic_ids=False)
    opened(sessions, 2)
    assert {s.session_id for s in sessions} & {second.session_id} == set()
    assert sessions.evictions_total == 1


def test_a_follower_takes_a_consumers_slot_but_not_a_followers() -> None:
    sessions, _ = cache(slots=1)
    opened(sessions, 0)
    opened(sessions, 1, follower=True)
    assert sessions.create(items(2), uses_topic_ids=False, is_follower=True) is None


@pytest.mark.parametrize("replica", [-1, 2])
def test_a_session_that_has_forgotten_its_last_partition_is_closed(
    tmp_path: Path, replica: int
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", 2, replicas=(1, 2))
        parts = tuple(
            FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1) for p in (0, 1)
        )

        async def ask(session: int, epoch: int, *, named: bool, forgotten: Any = ()) -> Any:
            request = FetchRequest(
                replica_state=ReplicaState(replica_id=replica, replica_epoch=-1),
                max_wait_ms=20_000 if forgotten == (0, 1) else 0,
                min_bytes=1,
                session_id=session,
                session_epoch=epoch,
                topics=(FetchTopic(topic_id=topic_id, partitions=parts),) if named else (),
                forgotten_topics_data=tuple(
                    ForgottenTopic(topic_id=topic_id, partitions=(p,)) for p in forgotten
                ),
            )
            return await c.call(request, FetchResponse, version=17)

        first = (await ask(0, 0, named=True)).session_id
        assert (await ask(first, 1, named=False, forgotten=(0,))).session_id == first
        last = await ask(first, 2, named=False, forgotten=(0, 1))
        assert (last.error_code, last.session_id, last.responses) == (0, 0, ())
        assert len(broker.services.sessions) == 0
        gone = await ask(first, 3, named=False)
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        again = await ask(first, 0, named=True)
        assert again.session_id != 0 and len(again.responses[0].partitions) == 2

    serve(tmp_path, scenario, racks={1: "a", 2: "b"})
