"""What the catalog reads from brokers: a silent coordinator makes no group vanish."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headwater.client.core.metadata import TopicMetadata
from headwater.client.values import OffsetAndTimestamp, PartitionDescription
from headwater.errors import ErrorCode, HeadwaterError
from headwater.ids import id_text
from headwater.wire.apis.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headwater.wire.apis.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from headwater.wire.apis.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from headwater.wire.tier_status import TIER_GROUP
from headwater_tier.catalog.observer import GROUPS_AT_ONCE, BrokerObserver
from headwater_tier.catalog.rows import Kind, dump

ID = UUID(int=0xA)


class Brokers:
    """A `RecordClient` of two brokers, which coordinate the groups of their lists."""

    broker_ids = (0, 1)

    def __init__(self) -> None:
        self.listed: dict[int, list[str]] = {0: ["app"], 1: ["job", TIER_GROUP]}
        self.failing: set[str] = set()
        self.shares: set[str] = set()
        self.starts = {0: 7, 1: -1}
        self.unread: set[int] = set()
        """Partitions whose share coordinator is loading."""
        self.unread_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.fetches: list[OffsetFetchRequest] = []
        self.leader = 0

    def metadata(self, _names: object) -> dict[str, TopicMetadata]:
        rows = (
            PartitionDescription(0, self.leader, 3, (0, 1), (0,), ()),
            PartitionDescription(1, 1, 4, (1, 0), (1,), ()),
        )
        names = ("t", "__consumer_offsets")
        return {name: TopicMetadata(name, ID, False, rows) for name in names}

    def list_offsets(self, wanted: dict[tuple[str, int], int]) -> dict[Any, OffsetAndTimestamp]:
        return {tp: OffsetAndTimestamp(100 + tp[1], -1, 0) for tp in wanted}

    def call_broker(self, broker: int, request: Any, _reply: Any, **_more: Any) -> Any:
        if isinstance(request, ListGroupsRequest):
            rows = [
                SimpleNamespace(
                    group_id=name, group_type="share" if name in self.shares else "classic"
                )
                for name in self.listed[broker]
            ]
            return SimpleNamespace(error_code=0, groups=rows, spec=ListGroupsResponse)
        if isinstance(request, DescribeShareGroupOffsetsRequest):
            names = [g.group_id for g in request.groups]
            return DescribeShareGroupOffsetsResponse(groups=tuple(map(self._starts, names)))
        self.fetches.append(request)
        return OffsetFetchResponse(groups=tuple(self._offsets(g.group_id) for g in request.groups))

    def _starts(self, group: str) -> DescribeShareGroupOffsetsResponseGroup:
        if group in self.failing:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return DescribeShareGroupOffsetsResponseGroup(
                group_id=group, topics=(), error_code=code
            )
        rows = tuple(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=p,
                start_offset=-1 if p in self.unread else at,
                leader_epoch=0,
                error_code=self.unread_code if p in self.unread else 0,
            )
            for p, at in self.starts.items()
        )
        topic = DescribeShareGroupOffsetsResponseTopic(topic_name="t", topic_id=ID, partitions=rows)
        return DescribeShareGroupOffsetsResponseGroup(group_id=group, topics=(topic,), error_code=0)

    def _offsets(self, group: str) -> OffsetFetchResponseGroup:
        if group in self.failing:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return OffsetFetchResponseGroup(group_id=group, topics=(), error_code=code)
        rows = tuple(
            OffsetFetchResponsePartitions(
                partition_index=p, committed_offset=at, metadata="m", error_code=0
            )
            for p, at in ((0, 42), (1, -1))
        )
        topic = OffsetFetchResponseTopics(name="t", partitions=rows)
        return OffsetFetchResponseGroup(group_id=group, topics=(topic,), error_code=0)


def observer(brokers: Brokers) -> BrokerObserver:
    return BrokerObserver(brokers)  # type: ignore[arg-type]


def test_ends_and_epochs_are_of_partitions_with_a_leader() -> None:
    brokers = Brokers()
    wanted = {"0": [100, 3], "1": [101, 4]}
    assert observer(brokers).ends().keys() == {(Kind.ENDS, "t")}
    (text,) = observer(brokers).ends().values()
    assert f'"ends":{wanted}'.replace(" ", "").replace("'", '"') in text
    brokers.leader = -1
    (text,) = observer(brokers).ends().values()
    assert '"ends":{"0":[-1,-1],"1":[101,4]}' in text


def test_each_broker_is_asked_for_its_own_groups_at_once() -> None:
    brokers = Brokers()
    found = observer(brokers).groups()
    assert found == {
        (Kind.GROUP, "app"): '{"offsets":{"t":{"0":[42,"m"]}}}',
        (Kind.GROUP, "job"): '{"offsets":{"t":{"0":[42,"m"]}}}',
    }
    assert len(brokers.fetches) == 2
    assert not any(request.require_stable for request in brokers.fetches)


def test_many_groups_are_asked_for_in_parts() -> None:
    brokers = Brokers()
    brokers.listed = {0: [f"g{n}" for n in range(GROUPS_AT_ONCE + 1)], 1: []}
    assert len(observer(brokers).groups()) == GROUPS_AT_ONCE + 1
    assert [len(request.groups) for request in brokers.fetches] == [GROUPS_AT_ONCE, 1]


def test_a_group_whose_coordinator_is_loading_stays_as_it_was() -> None:
    brokers = Brokers()
    seen = observer(brokers)
    before = seen.groups()
    brokers.failing.add("app")
    assert seen.groups() == before
    brokers.failing.clear()
    brokers.listed[0] = []
    assert seen.groups() == before, "it may be on its way to another coordinator"
    assert (Kind.GROUP, "app") not in seen.groups(), "it was deleted"


def test_groups_whose_coordinators_are_gone_stay_as_they_were() -> None:
    """Brokers that are lost one after the other: nobody lists the groups of the first ones."""
    brokers = Brokers()
    seen = observer(brokers)
    before = seen.groups()
    brokers.leader, brokers.listed[0] = -1, []
    for _ in range(3):
        seen.ends()
        assert seen.groups() == before
    with pytest.raises(HeadwaterError, match="__consumer_offsets-0 has no leader"):
        observer(brokers).groups()


def test_a_group_that_changes_its_coordinator_stays() -> None:
    """Between two looks: the former one does not list it any more, the next one not yet."""
    brokers = Brokers()
    seen = observer(brokers)
    before = seen.groups()
    brokers.listed[0] = []
    assert seen.groups() == before
    brokers.leader = 1
    assert seen.groups() == before
    brokers.listed[1] = ["app", "job"]
    assert seen.groups() == before


class Loading(Brokers):
    """Brokers of which some list no groups now."""

    def __init__(self, *brokers: int) -> None:
        super().__init__()
        self.loading = set(brokers)

    def call_broker(self, broker: int, request: Any, _reply: Any, **more: Any) -> Any:
        if isinstance(request, ListGroupsRequest) and broker in self.loading:
            return SimpleNamespace(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
        return super().call_broker(broker, request, _reply, **more)


def test_groups_that_a_loading_broker_does_not_list_stay_as_they_were() -> None:
    brokers = Loading()
    seen = observer(brokers)
    before = seen.groups()
    brokers.loading.add(0)
    assert seen.groups() == before


def test_no_group_is_gone_before_every_broker_has_listed_its_groups_once() -> None:
    brokers = Loading(0)
    seen = observer(brokers)
    with pytest.raises(HeadwaterError):
        seen.groups()
    brokers.loading.clear()
    brokers.failing.add("app")
    with pytest.raises(HeadwaterError):
        observer(brokers).groups()
    brokers.failing.clear()
    assert set(seen.groups()) == {(Kind.GROUP, "app"), (Kind.GROUP, "job")}


def queues(brokers: Brokers) -> Brokers:
    brokers.shares.add("job")
    return brokers


def starts(**partitions: int) -> str:
    rows = {name.removeprefix("p"): at for name, at in partitions.items()}
    return dump({"starts": {"t": {"id": id_text(ID), "starts": rows}}})


def test_a_share_group_has_start_offsets_where_it_has_begun() -> None:
    assert observer(queues(Brokers())).groups() == {
        (Kind.GROUP, "app"): '{"offsets":{"t":{"0":[42,"m"]}}}',
        (Kind.SHARE_GROUP, "job"): starts(p0=7),
    }


def test_a_share_partition_that_cannot_be_read_starts_where_it_did() -> None:
    brokers = queues(Brokers())
    seen = observer(brokers)
    seen.groups()
    brokers.unread, brokers.starts = {0}, {0: 8, 1: 3}
    assert seen.groups()[Kind.SHARE_GROUP, "job"] == starts(p0=7, p1=3)
    brokers.failing.add("job")
    assert seen.groups()[Kind.SHARE_GROUP, "job"] == starts(p0=7, p1=3)
    with pytest.raises(HeadwaterError, match="share_group job"):
        observer(brokers).groups()
    brokers.failing.clear()
    with pytest.raises(HeadwaterError, match="share_group job"):
        observer(brokers).groups()
    brokers.unread_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert observer(brokers).groups()[Kind.SHARE_GROUP, "job"] == starts(p1=3)


def test_a_share_group_that_is_deleted_is_gone_after_a_second_look() -> None:
    brokers = queues(Brokers())
    seen = observer(brokers)
    before = seen.groups()
    brokers.listed[1] = []
    assert seen.groups() == before
    assert (Kind.SHARE_GROUP, "job") not in seen.groups()
