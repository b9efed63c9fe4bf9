"""Decisions of the mirror: names, groups' offsets, ACLs, one partition's way."""

from __future__ import annotations

import pytest

from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import UsageError
from headwater.mirror.core.acls import acl_of, acl_row, mirrored_acls
from headwater.mirror.core.group_offset_writes import plan
from headwater.mirror.core.offset_translation import OffsetMap, Run
from headwater.mirror.core.partition_copy import PartitionCopy
from headwater.mirror.core.selection import Selection, mirrored_topics
from headwater.mirror.core.state import GroupOffset, Position
from headwater.ports.authorizer import Operation, ResourceType
from headwater.records.builder import build_batch
from headwater.security.acl import AclBinding, PatternType, PermissionType

TP = TopicPartition("t", 0)


def test_topics_are_chosen_by_an_allow_list_or_a_deny_list_never_both() -> None:
    names = ["orders", "orders-eu", "clicks", "__consumer_offsets", "t.orphans", "mm2-x.internal"]
    assert mirrored_topics(names, Selection("topics", "orders.*, x", None)) == [
        "orders", "orders-eu",
    ]  # fmt: skip
    assert mirrored_topics(names, Selection("topics", None, "orders.*")) == ["clicks"]
    assert mirrored_topics(names, Selection("topics", None, None)) == [
        "clicks", "orders", "orders-eu",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"topics and topics\.deny are both given"):
        Selection("topics", "a", "b")
    with pytest.raises(UsageError, match=r"topics: '\*x' is no regular expression"):
        Selection("topics", "a,*x", None)
    with pytest.raises(UsageError, match=r"groups\.deny is empty"):
        Selection("groups", None, " , ")


def at(offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TP: OffsetAndMetadata(offset, "m")}


def shifted(_tp: TopicPartition, offset: int) -> int:
    return offset + 100


def test_a_groups_offset_is_written_while_the_targets_is_absent_or_ours() -> None:
    first = plan(at(5), {}, {}, shifted, is_empty=True)
    assert first.writes == at(105)
    assert first.known == {TP: GroupOffset(5, 105, -1, "m")}
    again = plan(at(5), at(105), first.known, shifted, is_empty=True)
    assert not again.writes
    later = plan(at(7), at(105), again.known, shifted, is_empty=True)
    assert (later.writes, later.known) == (at(107), {TP: GroupOffset(7, 107, 105, "m")})
    # It crashed before 107 was written: 105 is still the mirror's.
    assert plan(at(8), at(105), later.known, shifted, is_empty=True).writes == at(108)


def test_a_groups_offset_that_is_not_ours_stays_and_so_does_one_of_a_group_with_members() -> None:
    known = {TP: GroupOffset(5, 105)}
    foreign = plan(at(6), at(50), known, shifted, is_empty=True)
    assert (foreign.writes, foreign.foreign) == ({}, [TP])
    assert foreign.known == {TP: GroupOffset(6, 105, -1, "m")}  # the source's is still followed
    busy = plan(at(6), at(105), known, shifted, is_empty=False)
    assert (busy.writes, busy.foreign) == ({}, [])
    unknown = plan(at(6), {}, {}, lambda _tp, _offset: None, is_empty=True)
    assert (unknown.writes, unknown.known) == ({}, {TP: GroupOffset(6, -1, -1, "m")})


def test_after_a_failover_the_targets_offset_is_taken_over_once() -> None:
    before = {TP: GroupOffset(3, 103)}  # of the time before
    taken = plan(at(6), at(50), before, shifted, is_empty=True, era=9)
    assert taken.writes == at(106)
    assert taken.known == {TP: GroupOffset(6, 106, 50, "m", 9)}
    assert plan(at(7), at(50), taken.known, shifted, is_empty=True, era=9).writes == at(107)
    assert not plan(at(7), at(60), taken.known, shifted, is_empty=True, era=9).writes
    busy = plan(at(6), at(50), before, shifted, is_empty=False, era=9)
    assert busy.known == {TP: GroupOffset(6, 50, -1, "m", 9)}


def acl(
    operation: Operation,
    name: str = "t",
    pattern: PatternType = PatternType.LITERAL,
    permission: PermissionType = PermissionType.ALLOW,
    kind: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:a", "*", operation, permission)


def test_rights_to_write_are_withheld_until_promotion() -> None:
    found = [acl(Operation.READ), acl(Operation.WRITE), acl(Operation.DELETE)]
    assert mirrored_acls(found, ["t"], is_promoted=False) == {acl(Operation.READ)}
    assert mirrored_acls(found, ["t"], is_promoted=True) == set(found)
    everything = mirrored_acls([acl(Operation.ALL)], ["t"], is_promoted=False)
    reading = (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
    assert everything == {acl(operation) for operation in reading}
    denied = acl(Operation.ALL, permission=PermissionType.DENY)
    assert mirrored_acls([denied], ["t"], is_promoted=False) == {denied}


def test_an_acl_of_a_pattern_grants_only_mirrored_topics() -> None:
    found = [
        acl(Operation.READ, "or", PatternType.PREFIXED),
        acl(Operation.DESCRIBE, "*"),
        acl(Operation.READ, "other"),
        acl(Operation.READ, "orders", kind=ResourceType.GROUP),
    ]
    assert mirrored_acls(found, ["orders", "x"], is_promoted=False) == {
        acl(Operation.READ, "orders"), acl(Operation.DESCRIBE, "orders"),
        acl(Operation.DESCRIBE, "x"),
    }  # fmt: skip
    assert acl_of(acl_row(found[0])) == found[0]


def log(base: int, *values: bytes) -> memoryview:
    rows = [(1, None, value, ()) for value in values]
    return memoryview(bytes(build_batch(rows, base_offset=base, leader_epoch=3)))


def test_a_partition_is_stored_up_to_what_was_sent_and_later_fetches_wait() -> None:
    copy = PartitionCopy(TP, Position(4, "s", "t", 2), OffsetMap())
    assert not copy.has_news
    copy.on_fetch(log(4, b"a" * 3000, b"b"), [])
    copy.on_fetch(log(6, b"c"), [])
    assert (copy.fetch_offset, copy.fetch_epoch, copy.has_data) == (7, 3, True)
    piece = copy.take()
    assert piece is not None and piece.records == 2
    assert copy.position == Position(6, "s", "t", 3, 1)
    assert copy.written(piece, 50) == {0}
    assert [key for key, _ in copy.records({0})] == [b"position/t/0", b"map/t/0/0"]
    copy.committed()
    assert copy.stored == 6 and copy.has_news  # the second fetch waits
    copy.on_fetch(log(6, b"c"), [])
    assert copy.take() is not None and copy.take() is None  # a fetch twice is one


def test_small_batches_that_wait_together_become_one_and_each_record_keeps_its_place() -> None:
    copy = PartitionCopy(TP, Position(0, "s", "t"), OffsetMap())
    for base in (0, 2, 7):
        copy.on_fetch(log(base, b"%d" % base, b"x"), [])
    copy.on_fetch(log(9, b"large" * 1000), [])
    piece = copy.take()
    assert piece is not None and (piece.records, piece.next_offset) == (6, 9)
    assert piece.runs(50) == [Run(0, 50, 4), Run(7, 54, 2)]
    (found,) = [p for p in [copy.take()] if p is not None]
    assert (found.source_offset, copy.has_data, copy.buffered_bytes) == (9, False, 0)


def test_what_the_mirror_in_the_other_direction_wrote_is_passed() -> None:
    reverse = OffsetMap()
    reverse.add([Run(100, 4, 2)])
    copy = PartitionCopy(TP, Position(4, "s", "t"), OffsetMap(), reverse)
    copy.on_fetch(log(4, b"theirs", b"theirs"), [])
    copy.on_fetch(log(6, b"ours"), [])
    piece = copy.take()
    assert piece is not None and (piece.source_offset, piece.records) == (6, 1)
    assert not copy.has_data


def test_a_partition_that_stopped_before_its_first_position_stores_none() -> None:
    copy = PartitionCopy(TP, Position(0, "s", "t"), OffsetMap())
    copy.stored = -1
    assert copy.may_store and copy.has_news
    copy.stop("the target has other records")
    copy.on_fetch(log(0, b"a"), [])
    copy.stop("a second reason", drops_fetched=True)
    assert copy.take() is None and not copy.has_data
    assert not copy.may_store and copy.stopped == "the target has other records"
