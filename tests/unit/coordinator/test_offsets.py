"""Committed offsets, their records, expiry, deletion; administration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ErrorCode
from headwater.wire.consumer_protocol import ConsumerProtocolSubscription
from headwater.wire.schema import SchemaError, encode
from headwater_broker.coordinator.common.placement import java_hash, partition_of
from headwater_broker.coordinator.common.shard import DECISION_BYTES, each
from headwater_broker.coordinator.group.offset_commands import OffsetCommit
from headwater_broker.coordinator.group.offsets import Commit
from headwater_broker.coordinator.group.records import (
    GroupMetadataValue,
    MemberMetadata,
    NewerRecordError,
    OffsetCommitKey,
    OffsetCommitValue,
    group_key,
    group_record,
    offset_key,
    offset_record,
    read_group,
    read_key,
    read_offset,
    versioned,
)
from unit.coordinator.classic_group_machine import GROUP, Machine

DAY_MS = 86_400_000


def subscription(*topics: str) -> bytes:
    """A consumer's metadata."""
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=topics), 0)


def test_simple_commits_need_an_empty_group() -> None:
    m = Machine()
    assert m.committed() == -1
    assert m.commit(5) == ErrorCode.NONE
    assert m.committed() == 5
    leader, _ = m.stable_pair()
    assert m.commit(6) == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.commit(7, leader, 2) == ErrorCode.NONE
    m.restart()
    assert m.committed() == 7


@pytest.mark.parametrize(
    ("member_id", "instance_id"), [("", None), ("", "i1"), ("m", None), ("m", "i1")]
)
def test_whoever_assigns_itself_commits_again_and_again(
    member_id: str, instance_id: str | None
) -> None:
    m = Machine()
    for offset in (5, 6):  # the first makes the group
        found = m.commit(offset, member_id, instance_id=instance_id)
        assert found == ErrorCode.NONE and m.committed() == offset
    m.stable_pair()
    found = m.commit(7, member_id, instance_id=instance_id)
    assert found == ErrorCode.UNKNOWN_MEMBER_ID and m.committed() == 6


def test_commits_are_refused_between_join_and_sync_but_not_before() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.join(follower, protocols=(("range", b"other"),))
    assert m.commit(1, leader, 2) == ErrorCode.NONE  # what it owns, before it joins
    m.join(leader)
    assert m.commit(2, leader, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    assert m.committed() == 1


def test_large_metadata_is_refused_alone() -> None:
    m = Machine(offset_metadata_max_bytes=3)
    assert m.commit(1, metadata="four") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert m.commit(2, metadata="abc") == ErrorCode.NONE
    assert m.committed() == 2
    assert m.commit(3, metadata="äöü") == ErrorCode.NONE, "characters, not bytes"
    assert m.commit(4, metadata="a\U0001f600") == ErrorCode.NONE
    assert m.commit(5, metadata="aa\U0001f600") == ErrorCode.OFFSET_METADATA_TOO_LARGE, "two"
    assert m.committed() == 4


def test_unknown_groups_refuse_generations() -> None:
    assert Machine().commit(1, "m", 3) == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_simple_group_expire_and_take_the_group_along() -> None:
    m = Machine()
    m.restart()  # starts the timers
    m.commit(1)
    m.pass_ms(6 * DAY_MS)
    assert m.committed() == 1
    m.pass_ms(DAY_MS + m.config.offsets_check_interval_ms)
    assert m.committed() == -1
    assert m.shard.groups == {}


def test_an_expiry_that_cannot_be_written_comes_again() -> None:
    m = Machine()
    m.restart()
    m.commit(1)
    m.refuse_appends = True
    m.pass_ms(7 * DAY_MS + 2 * m.config.offsets_check_interval_ms)
    assert m.committed() == 1, "memory follows the log"
    m.refuse_appends = False
    m.pass_ms(2 * m.config.offsets_check_interval_ms)
    assert m.committed() == -1


def test_an_own_retention_time_counts_first() -> None:
    m = Machine()
    m.restart()
    m.commit(1, retention_ms=DAY_MS)
    m.pass_ms(DAY_MS + m.config.offsets_check_interval_ms)
    assert m.committed() == -1


def test_offsets_stay_while_members_read_their_topic() -> None:
    m = Machine()
    m.restart()
    metadata = (("range", subscription("t")),)
    leader = m.replies[m.join(protocols=metadata)].member_id
    m.sync(leader, 1)
    m.commit(1, leader, 1)
    for _ in range(8 * DAY_MS // 9_000_000):
        for _ in range(1000):
            m.pass_ms(9_000)
            m.heartbeat(leader, 1)
        if m.elapsed_ms > 7 * DAY_MS + 2 * m.config.offsets_check_interval_ms:
            break
    assert m.committed() == 1
    m.leave(leader)
    m.pass_ms(6 * DAY_MS)
    assert m.committed() == 1  # the clock starts when the group became empty
    m.pass_ms(2 * DAY_MS)
    assert m.committed() == -1
    assert m.shard.groups == {}


def test_offsets_in_use_are_not_deleted() -> None:
    m = Machine()
    leader = m.replies[m.join(protocols=(("range", subscription("t")),))].member_id
    m.sync(leader, 1)
    m.commit(1, leader, 1)

    def delete() -> ErrorCode:
        token = m.run(lambda now, t: m.shard.offsets.delete_offsets(GROUP, (("t", 0),), now, t))
        reply = m.replies[token]
        code: ErrorCode = reply[("t", 0)] if isinstance(reply, dict) else reply
        return code

    assert delete() == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    m.leave(leader)
    assert delete() == ErrorCode.NONE
    assert m.committed() == -1
    m.run(lambda now, t: m.shard.administration.delete_groups((GROUP,), now, t))
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND


def test_deleted_topics_take_their_offsets_along() -> None:
    m = Machine()
    m.commit(1)
    m.run(lambda now, t: m.shard.offsets.topics_deleted(frozenset({"other"}), now, t))
    assert m.committed() == 1
    m.run(lambda now, t: m.shard.offsets.topics_deleted(frozenset({"t"}), now, t))
    assert m.committed() == -1


def test_groups_with_members_are_not_deleted() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.commit(3, leader, 2)

    def delete() -> ErrorCode:
        token = m.run(lambda now, t: m.shard.administration.delete_groups((GROUP,), now, t))
        code: ErrorCode = m.replies[token][GROUP]
        return code

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    m.leave(leader)
    m.leave(follower)
    assert delete() == ErrorCode.NONE
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    m.restart()
    assert m.shard.groups == {}


def test_groups_are_listed_by_state_and_described() -> None:
    m = Machine()
    m.stable_pair()
    for states, types, count in (
        (frozenset[str](), frozenset[str](), 1),
        (frozenset({"stable"}), frozenset({"classic"}), 1),
        (frozenset({"empty"}), frozenset[str](), 0),
        (frozenset[str](), frozenset({"consumer"}), 0),
    ):
        listed = m.run(
            lambda now, t, s=states, k=types: m.shard.administration.list_groups(s, k, now, t)
        )
        assert len(m.replies[listed]) == count
    described = m.replies[m.run(lambda now, t: m.shard.administration.describe(GROUP, now, t))]
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [x.member_assignment for x in described.members] == [b"one", b"two"]
    unknown = m.replies[m.run(lambda now, t: m.shard.administration.describe("none", now, t))]
    assert (unknown.group_state, unknown.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)


def test_records_are_kafkas_own_bytes() -> None:
    assert offset_key("g", "t", 3) == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert group_key("g") == b"\x00\x02\x00\x01g"
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9)
    stored = offset_record("g", "t", 3, value).value
    assert stored is not None
    assert stored.hex() == "000300000000000000070000000200016d0000000000000009"
    assert read_offset(stored) == value
    expiring = OffsetCommitValue(offset=7, metadata="", commit_timestamp=9, expire_timestamp=10)
    old = offset_record("g", "t", 3, expiring).value
    assert old is not None
    assert old[:2] == b"\x00\x01"
    assert read_offset(old) == expiring
    assert offset_record("g", "t", 3, None).value is None


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.integers(0, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_packed_offsets_are_the_bytes_of_the_schema(
    group: str, topic: str, partition: int, offset: int, leader_epoch: int, metadata: str
) -> None:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    value = OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=partition
    )
    stored = offset_record(group, topic, partition, value)
    assert stored == (versioned(key, 1), versioned(value, 3))
    assert stored.value is not None
    assert (read_key(stored.key), read_offset(stored.value)) == (key, value)
    for size in range(2, len(stored.key)):
        with pytest.raises(SchemaError):
            read_key(stored.key[:size])
    for size in range(2, len(stored.value)):
        with pytest.raises(SchemaError):
            read_offset(stored.value[:size])


def test_group_values_come_back_as_they_were() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=5,
        members=(
            MemberMetadata(
                member_id="m",
                group_instance_id="i",
                client_id="c",
                client_host="/h",
                rebalance_timeout=1,
                session_timeout=2,
                subscription=b"s",
                assignment=b"a",
            ),
        ),
    )
    stored = group_record("g", value).value
    assert stored is not None
    assert stored[:2] == b"\x00\x03"
    assert read_group(stored) == value


def test_unknown_kinds_of_keys_are_skipped() -> None:
    assert read_key(b"\x00\x63rest") is None
    m = Machine()
    m.shard.replay(0, -1, -1, b"\x00\x63rest", b"anything")
    m.shard.replay(1, -1, -1, b"\x00", b"broken")
    assert m.shard.groups == {}


@pytest.mark.parametrize(
    "key", [offset_key("g", "t", 0), group_key("g")], ids=["an offset", "a group"]
)
def test_a_record_of_a_newer_version_is_not_skipped(key: bytes) -> None:
    with pytest.raises(NewerRecordError, match=r"version 9.*newer Headwater"):
        Machine().shard.replay(0, -1, -1, key, b"\x00\x09rest")


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("group1", 40),
        ("group2", 39),
        ("test-group", 12),
        ("my-group", 12),
        ("polygenelubricants", 0),  # its hash is the smallest int
        ("", 0),
    ],
)
def test_the_partition_of_a_group_is_kafkas(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def test_the_hash_counts_utf16_units() -> None:
    assert java_hash("hello") == 99162322
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_an_offset_of_a_transaction_is_pending_until_its_marker() -> None:
    m = Machine()
    m.commit(5)
    m.transact(6)
    assert m.committed() == 5
    assert m.shard.pending_offsets(GROUP) == {("t", 0)}
    m.end_transaction(commit=True)
    assert m.committed() == 6
    assert m.shard.pending_offsets(GROUP) == set()
    m.transact(7)
    m.end_transaction(commit=False)
    assert m.committed() == 6


def test_a_transaction_commits_nothing_that_a_later_commit_has_overtaken() -> None:
    m = Machine()
    m.transact(6)
    m.commit(7)
    assert m.shard.pending_offsets(GROUP) == {("t", 0)}, "until the marker"
    m.end_transaction(commit=True)
    assert m.committed() == 7
    m.transact(8, producer_id=1)
    m.transact(9, producer_id=2)
    m.end_transaction(commit=True, producer_id=2)
    m.end_transaction(commit=True, producer_id=1)
    assert m.committed() == 9, "the higher log offset wins"


def test_a_deleted_topic_takes_pending_offsets_along() -> None:
    m = Machine()
    m.commit(5)
    m.transact(6)
    m.run(lambda now, t: m.shard.offsets.topics_deleted(frozenset({"t"}), now, t))
    m.end_transaction(commit=True)
    assert m.committed() == -1


def test_a_group_with_a_pending_offset_does_not_expire() -> None:
    m = Machine()
    m.restart()
    leader, follower = m.stable_pair()
    m.commit(1, leader, 2)
    m.transact(2)
    m.leave(leader)
    m.leave(follower)
    m.pass_ms(8 * DAY_MS)
    assert m.committed() == 1
    m.end_transaction(commit=False)
    m.pass_ms(2 * m.config.offsets_check_interval_ms)
    assert m.shard.groups == {}


def test_a_large_commit_is_several_decisions_and_one_reply() -> None:
    m = Machine()
    rows = tuple(Commit(f"topic-{n:04}", 0, n, -1, "m" * 100) for n in range(1500))
    ask = OffsetCommit(
        group_id=GROUP, generation=-1, member_id="", instance_id=None, retention_ms=-1, rows=rows
    )
    decisions = each(m.shard.offsets.commit(ask, m.now, 99))
    sizes = [d.size_max_bytes for d in decisions]
    assert len(sizes) > 2 and max(sizes) <= DECISION_BYTES
    assert [len(d.confirmations) for d in decisions] == [0] * (len(sizes) - 1) + [1]
    token = m.run(lambda now, t: m.shard.offsets.commit(ask, now, t))
    assert len(m.replies[token]) == 1500
    m.restart()
    deleted = each(m.shard.offsets.topics_deleted(frozenset(row.topic for row in rows), m.now, 98))
    assert len(deleted) > 1 and sum(len(d.records) for d in deleted) == 1500
