"""Where markers go: partitions led here, other leaders, topics that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.control import (
    LiveBroker,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from headwater_broker.app.marker_channel import MarkerChannel
from headwater_broker.app.transaction_channel import TransactionChannel
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.replica.marker_writer import MarkerWriter, TransactionMarker

OWN, OTHER, DEAD = 1, 2, 3
NEW, OLD, UNKNOWN = UUID(int=5), UUID(int=4), UUID(int=0)


class Written:
    """Stands for this broker's writer, and for the channel to the others."""

    def __init__(self) -> None:
        self.here = 0
        self.sent: list[int] = []

    async def write(self, markers: Sequence[TransactionMarker]) -> list[dict[object, ErrorCode]]:
        self.here += len(markers)
        return [{} for _ in markers]

    async def write_markers(
        self, broker_id: int, markers: Sequence[TransactionMarker]
    ) -> list[dict[object, ErrorCode]]:
        self.sent.append(broker_id)
        return [{} for _ in markers]


class Bench:
    def __init__(self) -> None:
        self.view = MetadataCache("cluster", lambda: 1)
        self.written = Written()
        self.is_lost = True
        self.asked = 0
        self.channel = MarkerChannel(
            OWN,
            self.view,
            cast(MarkerWriter, self.written),
            cast(TransactionChannel, self.written),
            self._is_deleted,
        )

    async def _is_deleted(self, topic: str, topic_id: UUID) -> bool:
        self.asked += 1
        return self.is_lost

    def update(self, *, full: bool) -> None:
        """Topic t, of the new id: its partitions are led by each of the brokers in turn."""
        states = tuple(
            PartitionState(
                topic="t", topic_id=NEW, partition=index, leader_id=leader, leader_epoch=0,
                partition_epoch=0, isr=(leader,), replicas=(leader,),
            )
            for index, leader in enumerate((OWN, OTHER, DEAD, -1))
        )  # fmt: skip
        self.view.apply(
            UpdateMetadataRequest(
                controller_id=1, controller_epoch=1, broker_epoch=1, cluster_id="cluster",
                full=full, brokers=(LiveBroker(broker_id=OWN), LiveBroker(broker_id=OTHER)),
                topics=(TopicState(topic="t", topic_id=NEW, configs=()),), partitions=states,
            )
        )  # fmt: skip


def test_markers_go_to_the_live_leader_of_the_topic_that_is_meant() -> None:
    b = Bench()
    b.update(full=True)
    leaders = [b.channel.leader(("t", index), NEW) for index in range(5)]
    assert leaders == [OWN, OTHER, None, None, None]
    assert b.channel.leader(("t", 0), UNKNOWN) == OWN, "records of Kafka have no topic ids"
    assert b.channel.leader(("t", 0), OLD) is None, "a later topic of that name"


def test_a_topic_is_deleted_when_a_complete_view_and_the_store_agree() -> None:
    async def story() -> None:
        b = Bench()
        assert not await b.channel.is_deleted("t", OLD), "the view is not complete"
        b.update(full=True)
        assert not await b.channel.is_deleted("t", NEW)
        assert not await b.channel.is_deleted("t", UNKNOWN)
        assert b.asked == 0, "the store is asked about what the view lacks"
        assert await b.channel.is_deleted("t", OLD)
        assert await b.channel.is_deleted("u", UNKNOWN)
        b.is_lost = False
        assert not await b.channel.is_deleted("t", OLD), "the view lags behind the store"

    asyncio.run(story())


def test_partitions_led_here_need_no_socket() -> None:
    async def story() -> None:
        b = Bench()
        marker = TransactionMarker(7, 0, True, 0, 2, {("t", 0): NEW})
        await b.channel.write(OWN, [marker])
        await b.channel.write(OTHER, [marker])
        assert (b.written.here, b.written.sent) == (1, [OTHER])

    asyncio.run(story())
