"""A coordinator that still loads its partition answers no offset of its groups (B1-285)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headwater_broker.coordinator.common.appender import ReplicaAppender
from solo_broker import SoloBroker
from unit.api.test_offset_requests import commit, serve

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def offsets(c: Connection, version: int) -> tuple[int, dict[int, tuple[int, int]]]:
    """(error of the whole, partition -> (offset, its error)) of the topic's two partitions."""
    if version >= 8:
        topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1)),)
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        reply = await c.call(
            OffsetFetchRequest(groups=(group,)), OffsetFetchResponse, version=version
        )
        [answer] = reply.groups
        rows = [p for t in answer.topics for p in t.partitions]
        found = {p.partition_index: (p.committed_offset, p.error_code) for p in rows}
        return answer.error_code, found
    named = (OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),)
    request = OffsetFetchRequest(group_id="g", topics=named)
    reply = await c.call(request, OffsetFetchResponse, version=version)
    old_rows = [p for t in reply.topics for p in t.partitions]
    known = {p.partition_index: (p.committed_offset, p.error_code) for p in old_rows}
    return reply.error_code, known


@pytest.mark.parametrize("version", [1, 8])
def test_no_offset_is_told_while_the_coordinator_loads_and_a_retry_gets_it(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    read_from = ReplicaAppender.read_from

    async def read_when_open(
        self: ReplicaAppender, partition: int, epoch: int, offset: int
    ) -> bytes:
        await gate.wait()
        return await read_from(self, partition, epoch, offset)

    monkeypatch.setattr(ReplicaAppender, "read_from", read_when_open)

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        gate.set()
        assert await commit(c, ("t", 0, 7, "")) == {("t", 0): 0}
        broker.create_topic(OFFSETS_TOPIC, 1, replicas=(1, 2), leader=2, epoch=1)
        gate.clear()
        broker.create_topic(OFFSETS_TOPIC, 1, replicas=(1,), leader=1, epoch=2)
        code, found = await offsets(c, version)
        if version == 1:  # its replies have no error of the whole
            assert found == {0: (-1, LOADING), 1: (-1, LOADING)}
        else:
            assert code == LOADING
            assert all(offset == -1 for offset, _ in found.values())
        gate.set()
        while (answer := await offsets(c, version)) != (0, {0: (7, 0), 1: (-1, 0)}):
            assert LOADING in (answer[0], answer[1].get(0, (0, 0))[1])
            await asyncio.sleep(0)

    serve(tmp_path, scenario)
