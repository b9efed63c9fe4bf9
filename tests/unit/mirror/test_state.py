"""What the mirror stores: every record is read as it was written, and folds by its key."""

from __future__ import annotations

import pytest

from headwater.client.values import TopicPartition
from headwater.errors import KafkaError
from headwater.mirror.core import state as rows
from headwater.mirror.core.offset_translation import Run
from headwater.mirror.core.selection import bucket_of
from headwater.mirror.core.state import (
    GroupOffset,
    Heartbeat,
    MirroredAcls,
    MirrorState,
    Orphans,
    Position,
    SourceEnd,
)
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, PatternType, PermissionType

TP = TopicPartition("a.b-c", 3)
ACL = AclBinding(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ,
    PermissionType.ALLOW,
)  # fmt: skip


def folded(*records: rows.StateRecord) -> MirrorState:
    made = MirrorState()
    for key, value in records:
        made.apply(key, value)
    return made


def test_every_kind_is_read_as_it_was_written() -> None:
    position = Position(7, "source-id", "target-id", 4, 99)
    beat = Heartbeat(5, "me", {TP: SourceEnd(9, 1)}, {TP: "why"}, "cluster")
    group = {TP: GroupOffset(1, 2, 3, "note", 4)}
    acls = MirroredAcls({ACL}, {ACL})
    found = folded(
        rows.position_record(TP, position),
        rows.chunk_record(TP, 0, [Run(0, 5, 7)]),
        rows.heartbeat_record(2, beat),
        rows.group_record("g/with/slashes", group),
        rows.orphans_record(TP, Orphans(12, 34, 5)),
        rows.acls_record(acls),
        rows.promoted_record(66),
    )
    assert found == MirrorState(
        {TP: position}, {TP: {0: [Run(0, 5, 7)]}}, {2: beat}, {"g/with/slashes": group},
        {TP: Orphans(12, 34, 5)}, 66, acls,
    )  # fmt: skip
    assert list(found.offset_map(TP)) == [Run(0, 5, 7)]


def test_a_later_record_replaces_and_a_tombstone_removes() -> None:
    found = folded(
        rows.position_record(TP, Position(7, "", "")),
        rows.position_record(TP, Position(8, "", "")),
        rows.chunk_record(TP, 0, [Run(0, 0, 1)]),
        rows.chunk_record(TP, 0, None),
        rows.promoted_record(1),
        rows.promoted_record(None),
    )
    assert found.positions[TP].next_offset == 8
    assert not found.chunks[TP] and found.promoted_ms is None
    assert not folded(
        rows.position_record(TP, Position(7, "", "")), rows.position_record(TP, None)
    ).positions


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"position/t/0", b"{}"),
        (b"position/t/0", b"not json"),
        (b"position/t/x", b'{"version":1,"next_offset":1}'),
        (b"position/t/0", b'{"version":2,"next_offset":1}'),
        (b"other", b'{"version":1}'),
        (None, b'{"version":1}'),
    ],
)
def test_a_record_that_another_version_or_program_wrote_is_refused_by_its_key(
    key: bytes | None, value: bytes
) -> None:
    with pytest.raises(KafkaError, match="cannot be read") as caught:
        MirrorState().apply(key, value)
    assert (key or b"").decode() in str(caught.value)


def test_what_a_newer_release_adds_is_skipped() -> None:
    added = MirrorState()
    position = b'{"version":1,"next_offset":5,"source_topic_id":"s","target_topic_id":"t","new":1}'
    added.apply(b"position/t/0", position)
    added.apply(b"group/g", b'{"version":1,"offsets":[["t",0,1,2,3,"m",4,"new"]],"new":1}')
    tp = TopicPartition("t", 0)
    assert added.positions[tp] == Position(5, "s", "t")
    assert added.groups["g"][tp] == GroupOffset(1, 2, 3, "m", 4)


def test_a_topics_partitions_share_the_buckets_evenly() -> None:
    for topic in ("t", "vehicles", "x" * 249):
        found = [bucket_of(TopicPartition(topic, p), 4) for p in range(8)]
        assert sorted(found) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert bucket_of(TopicPartition("vehicles", 0), 4) == 2  # stored positions depend on it
