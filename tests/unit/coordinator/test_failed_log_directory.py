"""A coordinator whose log directory has failed is dropped: it must not load for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.appender import ReplicaAppender
from solo_broker import SoloBroker
from unit.network.test_data_plane import Connection, serve


async def leads(_topic: str, _partition: int, _epoch: int) -> bool:
    return True


def test_a_load_from_a_failed_directory_says_that_leadership_is_lost(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, _c: Connection) -> None:
        broker.create_topic("log", 1)
        partition = broker.replicas.lookup("log", 0)
        epoch, services = partition.leader_epoch, broker.services
        appender = ReplicaAppender("log", broker.replicas, services.appends, services.reads, leads)
        assert await appender.read_from(0, epoch, 0) == b""
        partition.fail_storage("input/output error")
        with pytest.raises(KafkaError) as error:
            await appender.read_from(0, epoch, 0)
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER, "a load would try it again"

    serve(tmp_path, story)
