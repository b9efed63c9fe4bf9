"""Committed offsets: several groups by one request, and a member's own with its epoch (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Consumer, NewTopic, TopicPartition
from headwater.aio import AsyncAdmin
from headwater.client.connection import Connection
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from headwater.wire.apis.k10_find_coordinator import FindCoordinatorRequest
from unit.client.replies import change_replies
from whole_cluster import ServedCluster

ZERO = TopicPartition("offsets", 0)


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    properties = {
        "group_consumer_heartbeat_interval_ms": "20",
        "group_consumer_min_heartbeat_interval_ms": "20",
    }
    with ServedCluster(Path(tmp_path_factory.mktemp("offsets")), 1, **properties) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("offsets", 2, 1)])
            for number in range(3):
                admin.alter_group_offsets(f"g{number}", {ZERO: number})
        yield cluster


def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that clients send from now on."""
    seen: list[Any] = []
    real = Connection.call

    async def call(self: Connection, request: Any, reply_type: Any, **more: Any) -> Any:
        seen.append(request)
        return await real(self, request, reply_type, **more)

    monkeypatch.setattr(Connection, "call", call)
    return seen


def test_the_offsets_of_several_groups_come_by_one_request(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(c.bootstrap) as admin:
        seen = asked(monkeypatch)
        found = admin.list_offsets_of_groups(["g2", "nobody", "g1"])
        assert admin.list_offsets_of_groups([]) == {}
    assert {group: {tp: at.offset for tp, at in rows.items()} for group, rows in found.items()} == {
        "g2": {ZERO: 2},
        "nobody": {},
        "g1": {ZERO: 1},
    }
    assert list(found) == ["g2", "nobody", "g1"]
    assert len([r for r in seen if isinstance(r, OffsetFetchRequest)]) == 1
    assert len([r for r in seen if isinstance(r, FindCoordinatorRequest)]) == 1


def test_brokers_that_know_one_group_a_request_are_asked_for_each(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Connection.negotiate

    async def negotiate(self: Connection) -> Any:
        versions = await real(self)
        versions[OffsetFetchRequest.api_key] = (1, 7)
        versions[FindCoordinatorRequest.api_key] = (0, 3)
        return versions

    monkeypatch.setattr(Connection, "negotiate", negotiate)
    with Admin(c.bootstrap) as admin:
        found = admin.list_offsets_of_groups(["g2", "g1"])
    assert {group: rows[ZERO].offset for group, rows in found.items()} == {"g1": 1, "g2": 2}


@pytest.mark.parametrize("first", ["NOT_COORDINATOR", "GROUP_AUTHORIZATION_FAILED"])
def test_a_group_that_is_refused_is_asked_for_again_or_named(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    codes = [ErrorCode[first]]

    async def change(reply: OffsetFetchResponse) -> OffsetFetchResponse:
        if not codes:
            return reply
        code = codes.pop()
        rows = tuple(replace(g, error_code=code * (g.group_id == "g2")) for g in reply.groups)
        return replace(reply, groups=rows)

    change_replies(monkeypatch, OffsetFetchResponse, change)

    async def work() -> None:
        async with AsyncAdmin(c.bootstrap, retry_backoff_ms=1) as admin:
            seen = asked(monkeypatch)
            if first != "NOT_COORDINATOR":
                with pytest.raises(KafkaError, match="group g2") as refused:
                    await admin.list_offsets_of_groups(["g1", "g2"])
                assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
                return
            found = await admin.list_offsets_of_groups(["g1", "g2"])
            assert {group: rows[ZERO].offset for group, rows in found.items()} == {"g1": 1, "g2": 2}
            fetches = [r for r in seen if isinstance(r, OffsetFetchRequest)]
            assert [[g.group_id for g in r.groups] for r in fetches] == [["g1", "g2"], ["g2"]]

    asyncio.run(work())


@pytest.mark.parametrize("code", ["STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"])
def test_a_member_reads_its_offsets_with_its_epoch(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    group = f"modern-{code}"
    with Admin(c.bootstrap) as admin:
        admin.alter_group_offsets(group, {ZERO: 0, TopicPartition("offsets", 1): 0})
    codes = [ErrorCode[code]]

    async def change(reply: OffsetFetchResponse) -> OffsetFetchResponse:
        if not codes:
            return reply
        (row,) = reply.groups
        return replace(reply, groups=(replace(row, error_code=codes.pop(), topics=()),))

    change_replies(monkeypatch, OffsetFetchResponse, change)
    seen = asked(monkeypatch)
    options: dict[str, Any] = {"group_protocol": "consumer", "enable_auto_commit": False}
    with Consumer("offsets", bootstrap_servers=c.bootstrap, group_id=group, **options) as consumer:
        while len(consumer.assignment()) < 2:
            consumer.poll(10)
        assert consumer.position(ZERO, 20_000) == 0
        member = consumer.group_metadata()
    rows = [g for r in seen if isinstance(r, OffsetFetchRequest) for g in r.groups]
    assert len(rows) >= 2 and codes == []
    assert {row.member_id for row in rows} == {member.member_id}
    assert all(row.member_epoch > 0 for row in rows)


def test_the_classic_protocol_names_no_member(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = asked(monkeypatch)
    with Consumer(
        "offsets", bootstrap_servers=c.bootstrap, group_id="g1", auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.committed(ZERO)[ZERO].offset == 1
    (row,) = [g for r in seen if isinstance(r, OffsetFetchRequest) for g in r.groups]
    assert (row.member_id, row.member_epoch) == (None, -1)
