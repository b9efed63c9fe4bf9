"""Requests that name several groups: each is told once, and those that wait, wait together."""

from __future__ import annotations

import asyncio
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
from headwater.wire.apis.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headwater.wire.apis.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headwater.wire.apis.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headwater_broker.api import group_authorization, k10_find_coordinator
from headwater_broker.coordinator.common.service import CoordinatorService
from solo_broker import SoloBroker
from unit.api.test_offset_requests import commit, serve

MANY = tuple(f"group {number}" for number in range(40))
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


@pytest.mark.parametrize(("request_", "response", "rows_of"), BY_GROUP)
def test_groups_of_a_shard_that_is_not_here_yet_are_waited_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: Any, response: Any, rows_of: Any
) -> None:
    waiting = most = 0
    monkeypatch.setattr(group_authorization, "GROUPS_AT_ONCE", 25)

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        async def run(self: CoordinatorService[Any], group_id: str, command: object) -> None:
            nonlocal waiting, most
            waiting += 1
            most = max(most, waiting)
            await asyncio.sleep(0)
            waiting -= 1
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, group_id)

        monkeypatch.setattr(CoordinatorService, "run", run)
        reply = await c.call(request_, response)
        assert tuple(row.group_id for row in rows_of(reply)) == MANY
        assert most == 25, "and no more than that at a time"

    serve(tmp_path, scenario)


def test_a_group_named_twice_is_deleted_once_and_told_so(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        assert await commit(c, ("t", 0, 7, "")) == {("t", 0): 0}
        request = DeleteGroupsRequest(groups_names=("g", "nobody", "g"))
        reply = await c.call(request, DeleteGroupsResponse)
        told = [(row.group_id, row.error_code) for row in reply.results]
        assert told == [("g", 0), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)]

    serve(tmp_path, scenario)


def test_coordinators_of_many_groups_wait_once_for_their_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = 0

    async def await_view(*_: Any) -> bool:
        nonlocal waits
        waits += 1
        return False

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            monkeypatch.setattr(k10_find_coordinator, "await_view", await_view)
            monkeypatch.setattr(k10_find_coordinator, "create_on_demand", lambda *_: None)
            c = await open_connection("127.0.0.1", broker.port)
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=MANY)
            reply = await c.call(request, FindCoordinatorResponse)
            codes = {row.error_code for row in reply.coordinators}
            assert (len(reply.coordinators), codes) == (
                len(MANY),
                {ErrorCode.COORDINATOR_NOT_AVAILABLE},
            )
            c.close()

    asyncio.run(run())
    assert waits == 1


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
