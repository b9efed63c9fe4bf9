"""The persisters of share partitions: in memory, over this broker's shards, over other brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import SHARE_STATE_TOPIC
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.coordinator.share_state.service import (
    coordinator_key,
    parse_coordinator_key,
)
from headwater_broker.replica.share.ports import Persister, ShareState
from replica_trio import BROKERS, Trio
from share_persister import CONFORMANCE, MemoryPersister, acknowledged, share_partition
from solo_broker import SoloBroker

RULES = pytest.mark.parametrize("rule", CONFORMANCE, ids=lambda rule: rule.__name__)


@RULES
def test_in_memory(rule: Any) -> None:
    asyncio.run(rule(MemoryPersister(), share_partition(UUID(int=9))))


@RULES
def test_over_this_brokers_own_shards(rule: Any, tmp_path: Path) -> None:
    """Its first use creates the coordinators' topic."""

    async def story() -> None:
        async with SoloBroker(tmp_path, share_coordinator_state_topic_num_partitions="3") as broker:
            topic_id = broker.create_topic("t", 2)
            await rule(broker.services.persister, share_partition(topic_id, 1))

    asyncio.run(asyncio.wait_for(story(), 30))


@RULES
def test_over_three_brokers(rule: Any, tmp_path: Path) -> None:
    """Each asks the coordinators of all, here and over sockets."""

    async def story() -> None:
        async with Trio(tmp_path) as trio:
            trio.create(SHARE_STATE_TOPIC, 3)
            topic_id = trio.create("t", 3)
            for broker_id in BROKERS:
                persister = trio.brokers[broker_id].services.persister
                keys = [share_partition(topic_id, n, f"group {broker_id}") for n in range(3)]
                await asyncio.gather(*(rule(persister, key) for key in keys))

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_coordinator_that_goes_is_followed(tmp_path: Path) -> None:
    async def story() -> None:
        async with Trio(tmp_path) as trio:
            states_id = trio.create(SHARE_STATE_TOPIC, 1)
            topic_id = trio.create("t", 3)
            key = share_partition(topic_id)
            persister: Persister = trio.brokers[3].services.persister
            await persister.initialize(key, 1, 5)
            await persister.read(key, 2)
            asked = persister.write(key, ShareState(1, 2, 6, (acknowledged(8, 9),)))
            await trio.stop(1)
            writing = asyncio.create_task(asked)
            await asyncio.sleep(0.2)
            assert not writing.done()
            trio.elect(states_id, 2, isr=(2, 3))
            await writing
            expected = ShareState(1, 2, 6, (acknowledged(8, 9),))
            assert await persister.read(key, 2) == expected

    asyncio.run(asyncio.wait_for(story(), 60))


def test_writes_of_one_turn_share_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, sent = BrokerConnections.call, list[object]()

    async def counted(self: Any, broker_id: int, request: Any, *rest: Any) -> Any:
        sent.append(request)
        return await call(self, broker_id, request, *rest)

    monkeypatch.setattr(BrokerConnections, "call", counted)

    async def story() -> None:
        async with Trio(tmp_path) as trio:
            trio.create(SHARE_STATE_TOPIC, 1)
            topic_id = trio.create("t", 3)
            keys = [share_partition(topic_id, n) for n in range(3)]
            persister = trio.brokers[2].services.persister
            for key in keys:
                await persister.initialize(key, 1, 0)
                await persister.read(key, 0)
            sent.clear()
            changes = [(key, ShareState(1, 0, n)) for n in (1, 2) for key in keys]
            await asyncio.gather(*(persister.write(key, change) for key, change in changes))
            assert len(sent) == 2
            for key in keys:
                assert (await persister.read(key, 0)).start_offset == 2

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_topic_that_nobody_knows_is_final(tmp_path: Path) -> None:
    async def story() -> None:
        async with SoloBroker(tmp_path) as broker:
            key = share_partition(UUID(int=4))
            for call in (
                broker.services.persister.initialize(key, 1, 0),
                broker.services.persister.read_summary(key),
            ):
                with pytest.raises(KafkaError) as caught:
                    await call
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_deleted_topic_is_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        async with SoloBroker(tmp_path) as broker:
            gone, stays = broker.create_topic("gone"), broker.create_topic("stays")
            for topic_id in (gone, stays):
                await broker.services.persister.initialize(share_partition(topic_id), 1, 0)
            broker.delete_topic("gone")
            left = {gone, stays}
            while gone in left:
                await asyncio.sleep(0.01)
                shards = broker.services.share_states.coordinator.runtime.shards
                left = {key.topic_id for shard in shards for key in shard.states}
            assert left == {stays}

    asyncio.run(asyncio.wait_for(story(), 60))


def test_the_log_is_pruned_while_it_is_written(tmp_path: Path) -> None:
    async def story() -> None:
        properties = {
            "share_coordinator_state_topic_num_partitions": "1",
            "share_coordinator_snapshot_update_records_per_snapshot": "2",
            "share_coordinator_state_topic_prune_interval_ms": "1",
        }
        async with SoloBroker(tmp_path, **properties) as broker:
            key = share_partition(broker.create_topic("t"))
            persister = broker.services.persister
            await persister.initialize(key, 1, 0)
            await persister.read(key, 0)
            log = broker.replicas.partitions[SHARE_STATE_TOPIC, 0].log
            offset = 0
            while log.log_start_offset == 0:
                offset += 1
                await persister.write(key, ShareState(1, 0, offset))
                await asyncio.sleep(0.002)
            assert log.log_end_offset - log.log_start_offset <= 3
            # What is left is all that a successor needs.
            broker.create_topic(SHARE_STATE_TOPIC, epoch=1)
            assert (await persister.read(key, 0)).start_offset == offset

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("group", ["g", "a:b:c", "ü"])
def test_keys_name_share_partitions(group: str) -> None:
    key = share_partition(UUID(int=5), 3, group)
    assert parse_coordinator_key(coordinator_key(key)) == key


@pytest.mark.parametrize(
    "text", ["", "g", "g:3", ":AAAAAAAAAAAAAAAAAAAABQ:3", "g:AAAA:3", "g:AAAAAAAAAAAAAAAAAAAABQ:x"]
)
def test_other_keys_name_none(text: str) -> None:
    with pytest.raises(KafkaError, match="names no share partition"):
        parse_coordinator_key(text)
