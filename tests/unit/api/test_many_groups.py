"""Requests that name several groups: one row per group, and one wait for all of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from headwater.wire.apis.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.apis.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.wire.apis.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.wire.apis.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headwater.wire.apis.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headwater.wire.apis.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headwater_broker.api.group_authorization import GROUPS_AT_ONCE
from headwater_broker.api.registry import load_handlers
from headwater_broker.network.listener import Listener
from solo_broker import SoloBroker
from unit.api.test_offset_requests import commit, serve

MANY = tuple(f"group {number}" for number in range(GROUPS_AT_ONCE + 40))
BY_GROUP: tuple[tuple[Any, Any, Any], ...] = (
    (
        OffsetFetchRequest(
            groups=tuple(OffsetFetchRequestGroup(group_id=g, topics=None) for g in MANY)
        ),
        OffsetFetchResponse,
        lambda reply: reply.groups,
    ),
    (
        DescribeGroupsRequest(groups=MANY),
        DescribeGroupsResponse,
        lambda reply: reply.groups,
    ),
    (
        DeleteGroupsRequest(groups_names=MANY),
        DeleteGroupsResponse,
        lambda reply: reply.results,
    ),
)


class Waiting:
    """Groups of a shard that is still loading: counts how many are waited for at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def wait(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1

    async def fetch(self, group_id: str, wanted: object, **options: object) -> dict[Any, Any]:
        await self.wait()
        return {}

    async def describe(self, group_id: str) -> DescribedGroup:
        await self.wait()
        return DescribedGroup(group_id=group_id)

    async def delete_group(self, group_id: str) -> ErrorCode:
        await self.wait()
        return ErrorCode.NONE


@asynccontextmanager
async def connected(broker: SoloBroker, **services: Any) -> AsyncIterator[Connection]:
    """A connection to a listener whose handlers have these services."""
    changed = dataclasses.replace(broker.services, **services)
    listener = Listener(changed, load_handlers(), asyncio.get_running_loop())
    connection = await open_connection("127.0.0.1", await listener.start("127.0.0.1", 0))
    yield connection
    connection.close()
    await listener.close()


@pytest.mark.parametrize(("request_", "response", "rows_of"), BY_GROUP)
def test_groups_of_a_shard_that_is_not_here_yet_are_waited_for_together(
    tmp_path: Path, request_: Any, response: Any, rows_of: Any
) -> None:
    async def scenario(broker: SoloBroker, _: Connection) -> None:
        groups = Waiting()
        async with connected(broker, groups=groups) as c:
            reply = await c.call(request_, response)
        assert tuple(row.group_id for row in rows_of(reply)) == MANY
        assert groups.most == GROUPS_AT_ONCE, "and no more than that at a time"

    serve(tmp_path, scenario)


def test_a_group_named_twice_is_deleted_once_and_told_so(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        assert await commit(c, ("t", 0, 7, "")) == {("t", 0): 0}
        request = DeleteGroupsRequest(groups_names=("g", "nobody", "g"))
        reply = await c.call(request, DeleteGroupsResponse)
        told = [(row.group_id, row.error_code) for row in reply.results]
        assert told == [("g", 0), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)]

    serve(tmp_path, scenario)


class Counted(list[Any]):
    """Listeners of changed metadata: each wait for it adds one."""

    added = 0

    def append(self, listener: Any) -> None:
        self.added += 1
        super().append(listener)


def test_coordinators_of_many_groups_wait_once_for_their_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> bytes:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "one broker is too few")

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.view.on_change = listeners = Counted(broker.view.on_change)
            config = dataclasses.replace(broker.services.config, internal_topic_wait_ms=1)
            monkeypatch.setattr(broker, "forward", refuse)
            async with connected(broker, config_now=lambda: config) as c:
                request = FindCoordinatorRequest(key_type=0, coordinator_keys=MANY[:40])
                reply = await c.call(request, FindCoordinatorResponse)
            codes = {row.error_code for row in reply.coordinators}
            assert (len(reply.coordinators), codes) == (
                40,
                {ErrorCode.COORDINATOR_NOT_AVAILABLE},
            )
            assert listeners.added == 1

    asyncio.run(run())


def test_a_group_without_a_name_has_no_members(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        asked: tuple[tuple[Any, Any], ...] = (
            (HeartbeatRequest(group_id="", generation_id=1, member_id="m"), HeartbeatResponse),
            (SyncGroupRequest(group_id="", generation_id=1, member_id="m"), SyncGroupResponse),
            (
                LeaveGroupRequest(group_id="", members=(MemberIdentity(member_id="m"),)),
                LeaveGroupResponse,
            ),
            (OffsetDeleteRequest(group_id="", topics=()), OffsetDeleteResponse),
        )
        for request, response in asked:
            reply = await c.call(request, response)
            assert reply.error_code == ErrorCode.INVALID_GROUP_ID, request

    serve(tmp_path, scenario)
