"""A former leader that does not know it, and a consumer whose metadata is as old.

The offsets that a group commits in the meantime are beyond the former leader's log end. Two guards
keep the consumer from resetting, each tested alone: the broker confirms that it leads before it
answers OFFSET_OUT_OF_RANGE, and the consumer looks for a leader of the committed epoch (KIP-320).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.client.addresses import parse_bootstrap
from headwater.client.admin.client import Admin
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.connection import Connection
from headwater.client.consumer import Consumer
from headwater.client.producer import Producer
from headwater.client.values import NewTopic, OffsetAndMetadata, TopicPartition
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.coordinator.common.placement import partition_of
from whole_cluster import ServedCluster, WholeCluster

TP = TopicPartition("t", 0)
LIMIT_MS = 20_000
WRITTEN = 3
"""Records before the leader is replaced, and as many after."""
OPTIONS: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}


class Zombie:
    """Broker `former` led `t`, and its successor has more records."""

    def __init__(self, served: ServedCluster) -> None:
        self.served = served
        with Admin(served.bootstrap) as admin:
            # Broker 0 leads, which is asked for metadata before the others.
            admin.create_topics([NewTopic("t", assignments={0: [0, 1, 2]})])
            admin.alter_group_offsets("other", {TP: OffsetAndMetadata(0)})  # makes groups' topic
        self.former = served.cluster.brokers[0]
        assert served.state("t").leader_id == 0
        self.group = self._group_of_another()
        self._write(served.bootstrap)
        self.heir = Consumer(bootstrap_servers=served.bootstrap, group_id=self.group, **OPTIONS)
        self.heir.partitions_for("t")
        served.lose_session(self.former.id)
        others = [b for b in served.cluster.brokers.values() if b is not self.former]
        served.until(
            lambda: all(b.view.partition("t", 0).leader_id != self.former.id for b in others),
            "another leader",
        )
        self.bootstrap = ",".join(f"127.0.0.1:{b.port}" for b in others)
        self._write(self.bootstrap)

    def _group_of_another(self) -> str:
        """A group whose coordinator is another broker."""
        led = [self.served.state(OFFSETS_TOPIC, p).leader_id for p in range(2)]
        names = (f"group-{n}" for n in range(99))
        return next(g for g in names if led[partition_of(g, len(led))] != self.former.id)

    @staticmethod
    def _write(bootstrap: str) -> None:
        with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
            for _ in range(WRITTEN):
                producer.send("t", b"v").result(LIMIT_MS / 1000)

    def commit_the_end(self, *, with_epoch: bool) -> None:
        """A member that knows the new leader reads everything."""
        end = 2 * WRITTEN
        with Consumer(bootstrap_servers=self.bootstrap, group_id=self.group, **OPTIONS) as reader:
            reader.assign([TP])
            while reader.position(TP, LIMIT_MS) < end:
                assert reader.poll(LIMIT_MS)
            reader.commit(None if with_epoch else {TP: end})
            known = reader.committed()[TP]
        assert known.offset == end
        assert (known.leader_epoch > self.former.replicas.partitions[TP].leader_epoch) == with_epoch

    def read_on(self) -> list[int]:
        """The offsets that a member with old metadata reads after more records were written."""
        self.heir.assign([TP])
        assert self.heir.position(TP, LIMIT_MS) == 2 * WRITTEN
        assert self.heir.poll(500) == {}
        self._write(self.bootstrap)
        return [row.offset for row in self.heir.poll(LIMIT_MS)[TP]]


@pytest.fixture
def zombie(tmp_path: Path) -> Iterator[Zombie]:
    with ServedCluster(tmp_path) as served:
        made = Zombie(served)
        with made.heir:
            yield made
        assert made.former.replicas.partitions[TP].is_leader, "it still believes that it leads"
        served.find_session(made.former.id)


def test_the_broker_confirms_that_it_leads(zombie: Zombie) -> None:
    """For clients that commit no leader epochs."""
    zombie.commit_the_end(with_epoch=False)
    assert zombie.read_on()[0] == 2 * WRITTEN


def test_the_consumer_looks_for_a_leader_of_the_epoch(zombie: Zombie) -> None:
    """For brokers that do not confirm it, as Kafka's."""

    async def always(*_: Any) -> bool:
        return True

    object.__setattr__(zombie.former.services, "leads", always)
    zombie.commit_the_end(with_epoch=True)
    assert zombie.read_on()[0] == 2 * WRITTEN


class Recording(Cluster):
    """Records the nodes it asks; those in `deaf` never answer."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(
            parse_bootstrap(bootstrap), ClusterOptions(alternate_broker_timeout_ms=200)
        )
        self.asked: list[int] = []
        self.deaf: set[int] = set()

    async def connection(self, node_id: int, lane: str = "") -> Connection:
        self.asked.append(node_id)
        if node_id in self.deaf:
            await asyncio.Event().wait()
        return await super().connection(node_id, lane)


def test_the_broker_not_asked_for_the_longest_time_is_asked_next(tmp_path: Path) -> None:
    """Otherwise one that lags behind would be asked each time, as its connection is open."""

    async def run() -> None:
        async with WholeCluster(tmp_path) as served:
            client = Recording(served.bootstrap)
            await client.bootstrap(LIMIT_MS)
            for alternate in (False, False, True, True):
                await client.refresh((), alternate=alternate)
            assert client.asked == [0, 0, 1, 2]
            client.deaf = {0}  # whose turn it is, and who is asked first otherwise
            updates = client.cache.updates
            await asyncio.wait_for(client.refresh((), alternate=True), LIMIT_MS / 1000)
            assert client.cache.updates > updates, "another has answered"
            assert client.asked[4:] == [0, 1]
            await client.close()

    asyncio.run(run())
