"""The catalog's view of the brokers: log ends, leader epochs, groups' offsets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headwater.client.blocking.record_client import LATEST, RecordClient
from headwater.client.core.metadata import NO_LEADER, TopicMetadata
from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ids import id_text
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from headwater.wire.apis.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headwater.wire.apis.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from headwater_tier.catalog.rows import (
    COORDINATOR_TOPICS,
    NEVER_SEEN,
    NOT_KEPT_GROUPS,
    Key,
    Kind,
    dump,
)

logger = logging.getLogger(__name__)

NAMES_OFFSET_FETCH_VERSION = 9
"""The last OffsetFetch version with topic names; later ones have topic ids."""
GROUPS_AT_ONCE = 100
"""Groups of one OffsetFetch: a broker answers others meanwhile."""
SHARE_TYPE = "share"


class BrokerObserver:
    """Reads from brokers by public requests. What does not answer keeps its former row."""

    def __init__(self, client: RecordClient) -> None:
        self._client = client
        self._groups: dict[Key, str] = {}
        self._has_all_groups = False
        self._silent: list[KafkaError | OSError] = []
        """Why not all groups were read in the last look."""
        self._coordinators: dict[int, tuple[int, int]] = {}
        """Partition of the offsets' topic -> its leader, who coordinates groups, and the epoch."""
        self._topics: Mapping[str, TopicMetadata] | None = None
        """As `ends` has just seen them, for the `groups` that follows."""
        self._missing: set[Key] = set()
        """Known groups that the last look did not find."""

    def ends(self) -> dict[Key, str]:
        """Topic -> its id, and per partition (log end, leader epoch); NEVER_SEEN for partitions
        without a leader."""
        self._topics = self._client.metadata(None)
        topics = {n: topic for n, topic in self._topics.items() if n not in COORDINATOR_TOPICS}
        led = {
            (name, p.partition): p.leader_epoch
            for name, topic in topics.items()
            for p in topic.partitions
            if p.leader != NO_LEADER
        }
        found = self._client.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
        ends = {
            name: {str(p.partition): [NEVER_SEEN, NEVER_SEEN] for p in topic.partitions}
            for name, topic in topics.items()
        }
        for (name, partition), epoch in led.items():
            ends[name][str(partition)] = [found[name, partition].offset, epoch]
        return {
            (Kind.ENDS, name): dump({"id": id_text(topic.topic_id), "ends": ends[name]})
            for name, topic in topics.items()
        }

    def groups(self) -> dict[Key, str]:
        """Group -> its committed offsets, share group -> its start offsets (KIP-932). A group that
        cannot be read now is as it was: its coordinator may be loading. Raises HeadwaterError
        while that is not known.

        A cluster that is being lost has partitions without a leader, whose groups nobody lists:
        they are not gone. So a group is gone when two looks do not find it, between which every
        group had the same coordinator.
        """
        rows: dict[Key, str] = {}
        self._silent = []
        is_steady = self._look_for_coordinators()
        for broker_id in self._client.broker_ids:
            try:
                listed = self._listed(broker_id)
            except (KafkaError, OSError) as error:
                logger.info("groups of broker %d are not read now: %s", broker_id, error)
                self._silent.append(error)
                listed = []
            shares = [g.group_id for g in listed if g.group_type == SHARE_TYPE]
            names = [g.group_id for g in listed if g.group_type != SHARE_TYPE]
            for chunk in _chunks(names, GROUPS_AT_ONCE):
                rows.update(self._offsets(broker_id, chunk))
            for chunk in _chunks(shares, GROUPS_AT_ONCE):
                rows.update(self._starts(broker_id, chunk))
        if self._silent and not self._has_all_groups:
            cause = self._silent[0]
            raise HeadwaterError(f"not all groups can be read yet: {cause}") from cause
        missing = self._groups.keys() - rows.keys()
        is_sure = is_steady and not self._silent
        kept = missing - self._missing if is_sure else missing
        self._missing = missing
        self._groups, self._has_all_groups = rows | {key: self._groups[key] for key in kept}, True
        return self._groups

    def _look_for_coordinators(self) -> bool:
        """Whether every group has the coordinator that it had at the last look. Without one for all
        of them the look counts as silent."""
        topics, self._topics = self._topics, None
        topic = (topics or self._client.metadata(None)).get(OFFSETS_TOPIC)
        rows = () if topic is None else topic.partitions
        found = {p.partition: (p.leader, p.leader_epoch) for p in rows}
        absent = [p for p, (leader, _) in found.items() if leader == NO_LEADER]
        if absent:
            text = f"{OFFSETS_TOPIC}-{absent[0]} has no leader"
            self._silent.append(kafka_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, text))
        former, self._coordinators = self._coordinators, found
        return found == former

    def _listed(self, broker_id: int) -> list[ListedGroup]:
        """The groups that this broker coordinates."""
        reply = self._client.call_broker(broker_id, ListGroupsRequest(), ListGroupsResponse)
        if reply.error_code:
            raise kafka_error(reply.error_code, f"groups of broker {broker_id}")
        return [g for g in reply.groups if g.group_id not in NOT_KEPT_GROUPS]

    def _offsets(self, broker_id: int, groups: list[str]) -> Iterator[tuple[Key, str]]:
        asked = tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups)
        request = OffsetFetchRequest(groups=asked, require_stable=False)
        reply = self._client.call_broker(
            broker_id, request, OffsetFetchResponse, cap=NAMES_OFFSET_FETCH_VERSION
        )
        for row in reply.groups:
            key = (Kind.GROUP, row.group_id)
            if row.error_code:
                yield from self._former(key, row.error_code)
            elif offsets := _by_topic(row):
                yield key, dump({"offsets": offsets})

    def _starts(self, broker_id: int, groups: list[str]) -> Iterator[tuple[Key, str]]:
        """Share groups of this coordinator -> their start offsets. A partition whose state cannot
        be read now, as its share coordinator may be loading, starts where it did."""
        asked = (DescribeShareGroupOffsetsRequestGroup(group_id=n, topics=None) for n in groups)
        request = DescribeShareGroupOffsetsRequest(groups=tuple(asked))
        reply = self._client.call_broker(broker_id, request, DescribeShareGroupOffsetsResponse)
        for row in reply.groups:
            key = (Kind.SHARE_GROUP, row.group_id)
            if row.error_code:
                yield from self._former(key, row.error_code)
            elif starts := self._by_share_topic(key, row):
                yield key, dump({"starts": starts})

    def _by_share_topic(
        self, key: Key, group: DescribeShareGroupOffsetsResponseGroup
    ) -> dict[str, dict[str, Any]]:
        former = json.loads(self._groups[key])["starts"] if key in self._groups else {}
        found: dict[str, dict[str, Any]] = {}
        for topic in group.topics:
            own_id = id_text(topic.topic_id)
            known = former.get(topic.topic_name, {})
            before = known["starts"] if known.get("id") == own_id else {}
            starts: dict[str, int] = {}
            for row in topic.partitions:
                index = str(row.partition_index)
                if row.error_code and index in before:
                    starts[index] = before[index]
                elif row.error_code:
                    self._note_silent(key, row.error_code)
                elif row.start_offset >= 0:
                    starts[index] = row.start_offset
            if starts:
                found[topic.topic_name] = {"id": own_id, "starts": starts}
        return found

    def _former(self, key: Key, code: int) -> Iterator[tuple[Key, str]]:
        """The row of a group that cannot be read now."""
        if key in self._groups:
            yield key, self._groups[key]
        else:
            self._note_silent(key, code)

    def _note_silent(self, key: Key, code: int) -> None:
        silent = kafka_error(code, f"{key[0].value} {key[1]}")
        if silent.retriable:
            self._silent.append(silent)
        else:
            logger.warning("not kept in the catalog: %s", silent)


def _by_topic(group: OffsetFetchResponseGroup) -> dict[str, dict[str, list[Any]]]:
    found = {
        topic.name: {
            str(row.partition_index): [row.committed_offset, row.metadata or ""]
            for row in topic.partitions
            if not row.error_code and row.committed_offset >= 0
        }
        for topic in group.topics
    }
    return {name: rows for name, rows in found.items() if rows}


def _chunks(names: Iterable[str], size: int) -> Iterator[list[str]]:
    every = sorted(names)
    for at in range(0, len(every), size):
        yield every[at : at + size]


def merged_ends(former: str | None, now: str) -> str:
    """The ends of `now`; partitions that are missing there as they were in `former`, if it is the
    same topic. An end never falls: the larger one counts."""
    if former is None:
        return now
    before, after = json.loads(former), json.loads(now)
    if before["id"] != after["id"]:
        return now
    ends = dict(before["ends"])
    for partition, (end, epoch) in after["ends"].items():
        known_end, known_epoch = ends.get(partition, (NEVER_SEEN, NEVER_SEEN))
        ends[partition] = [max(end, known_end), max(epoch, known_epoch)]
    return dump({"id": after["id"], "ends": ends})
