"""The client's logic without I/O: partitioning, metadata, producing, and visible records."""

from __future__ import annotations

from uuid import UUID

import pytest

from headwater.client import table
from headwater.client.core.batch_split import split_batch
from headwater.client.core.completed_fetch import AbortedFilter, CompletedFetch
from headwater.client.core.metadata import MetadataCache, StaleMetadata
from headwater.client.core.partition_fetch_state import PartitionFetchState
from headwater.client.core.partition_queue import FailureAction, PartitionQueue, ProducerBatch
from headwater.client.core.partitioning import StickyPartitioner, murmur2
from headwater.client.errors import MessageTooLargeError, kafka_error
from headwater.columnar.decode import CorruptRecordsError
from headwater.errors import ErrorCode, KafkaError
from headwater.records.builder import BatchBuilder, build_batch
from headwater.records.compression import UNPACKED_VARIABLE, Compression
from headwater.records.control import ControlType, build_marker
from headwater.records.record import read_records
from headwater.wire.apis.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_sticky_moves_after_its_bytes_and_prefers_partitions_with_a_leader() -> None:
    choice = StickyPartitioner(100, lambda n: 0)
    assert choice.switch([1, 2], 3) == 1
    choice.left -= 60
    assert choice.left == 40
    assert choice.switch([1, 2], 3) == 2
    assert choice.left == 100
    assert choice.switch([], 3) == 0


def metadata(epoch: int, leader: int, topic_id: int = 1, code: int = 0) -> MetadataResponse:
    row = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    brokers = tuple(MetadataResponseBroker(node_id=n, host="h", port=n) for n in (1, 2))
    topic = MetadataResponseTopic(
        name="t", error_code=code, topic_id=UUID(int=topic_id), partitions=() if code else (row,)
    )
    return MetadataResponse(brokers=brokers, topics=(topic,))


def test_a_leader_epoch_never_decreases_for_one_topic_id() -> None:
    cache = MetadataCache()
    cache.update(metadata(5, 1))
    cache.update(metadata(4, 2))
    assert cache.leader("t", 0) == 1
    assert not cache.move_leader("t", 0, 2, 5)
    assert cache.move_leader("t", 0, 2, 6)
    assert cache.leader("t", 0) == 2
    cache.update(metadata(0, 1, topic_id=2))
    assert cache.leader("t", 0) == 1, "a new topic id starts afresh"
    cache.update(metadata(0, 1, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert cache.partition("t", 0) is None
    assert cache.errors["t"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_required_epoch_excludes_leaders_of_older_ones() -> None:
    cache = MetadataCache()
    cache.require_epoch("t", 0, 7)  # before the topic is known
    cache.update(metadata(6, 1))
    assert cache.leader("t", 0) == -1
    cache.update(metadata(0, 1, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    cache.update(metadata(6, 1))
    assert cache.leader("t", 0) == -1
    assert cache.move_leader("t", 0, 1, 7)
    assert cache.leader("t", 0) == 1

    for epoch in (-1, 6, 7):
        cache.require_epoch("t", 0, epoch)
    assert cache.leader("t", 0) == 1
    cache.require_epoch("t", 0, 9)
    cache.require_epoch("t", 0, 8)
    cache.update(metadata(8, 1))
    assert cache.leader("t", 0) == -1
    cache.drop_required_epoch("t", 0)
    assert cache.leader("t", 0) == 1
    cache.require_epoch("t", 0, 9)
    cache.update(metadata(9, 2))
    assert cache.leader("t", 0) == 2

    cache.require_epoch("t", 0, 10)
    cache.update(metadata(0, 1, topic_id=2))
    assert cache.leader("t", 0) == 1, "epochs of another topic"


def test_a_required_epoch_that_no_broker_knows_is_given_up() -> None:
    place = ("t", 0)
    stale = StaleMetadata(30.0)
    assert stale.on_response({place: 7}, 2, 0.0) == (1, [])
    assert stale.on_response({}, 2, 10.0) == (0, []), "a rebalance"
    assert stale.on_response({place: 7}, 2, 29.0) == (2, [])
    assert stale.on_response({place: 8}, 2, 31.0) == (1, []), "another epoch"
    assert stale.on_response({place: 7}, 2, 31.0) == (3, [place])
    assert stale.on_response({place: 7}, 2, 61.0) == (1, []), "counts from before a pause"
    assert stale.on_response({place: 7}, 9, 90.0) == (2, [])
    assert stale.on_response({place: 7}, 9, 92.0) == (3, []), "fewer responses than brokers"


def test_brokers_without_leader_epochs_satisfy_any_required_epoch() -> None:
    cache = MetadataCache()
    cache.require_epoch("t", 0, -1)
    assert not cache.required_epochs
    cache.require_epoch("t", 0, 7)
    cache.update(metadata(-1, 1))
    assert cache.leader("t", 0) == 1
    cache.require_epoch("t", 0, 7)
    assert cache.leader("t", 0) == 1


def test_a_partition_without_a_leader_has_its_epoch() -> None:
    cache = MetadataCache()
    cache.update(metadata(7, -1))
    cache.require_epoch("t", 0, 7)
    assert not cache.required_epochs
    cache.require_epoch("t", 0, 8)
    cache.update(metadata(9, -1))
    assert not cache.required_epochs


class World:
    """A queue and three batches of two records in it."""

    def __init__(self, count: int = 3) -> None:
        self.queue = PartitionQueue("t", 0, is_idempotent=True)
        self.batches = []
        for _ in range(count):
            batch = ProducerBatch(self.queue, None, 0.0)
            batch.count = 2
            self.queue.open = batch
            self.queue.seal()
            self.batches.append(batch)

    def take(self) -> ProducerBatch:
        assert self.queue.due_at(0.0) is not None
        return self.queue.next_batch(9, 0)

    def fail(self, batch: ProducerBatch, code: ErrorCode) -> FailureAction:
        error = kafka_error(code)
        return self.queue.failed(batch, error, 1.0, retry_until=100.0, backoff_s=0.1)


def numbers(batches: list[ProducerBatch]) -> list[tuple[int, int]]:
    return [(b.producer_epoch, b.sequence) for b in batches]


def test_retries_keep_their_sequences_and_order() -> None:
    world = World()
    sent = [world.take() for _ in range(3)]
    assert numbers(sent) == [(0, 0), (0, 2), (0, 4)]
    assert world.fail(sent[0], ErrorCode.NOT_LEADER_OR_FOLLOWER) is FailureAction.RETRY
    assert world.queue.due_at(0.0) is None, "others are in flight"
    world.fail(sent[2], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.fail(sent[1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not world.queue.needs_reset, "it only follows from the first failure"
    again = []
    for _ in range(3):
        again.append(world.take())
        assert world.queue.due_at(0.0) is None
        world.queue.succeeded(again[-1])
    assert again == sent
    assert numbers(again) == [(0, 0), (0, 2), (0, 4)]
    assert world.queue.is_idle


def test_an_out_of_order_error_of_the_oldest_batch_starts_the_next_epoch() -> None:
    world = World(2)
    first, second = world.take(), world.take()
    world.fail(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.fail(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert world.take() is first
    world.queue.succeeded(first)
    assert world.take() is second
    assert numbers([first, second]) == [(1, 0), (1, 2)]


def test_a_batch_that_is_given_up_starts_a_new_epoch_if_none_follows() -> None:
    world = World(1)
    batch = world.take()
    assert world.fail(batch, ErrorCode.INVALID_RECORD) is FailureAction.FAIL
    late = ProducerBatch(world.queue, None, 0.0)
    late.count = 1
    world.queue.sealed.append(late)
    assert world.take() is late
    assert numbers([late]) == [(1, 0)]


def test_a_duplicate_succeeds_and_an_expired_batch_fails() -> None:
    world = World(2)
    first, second = world.take(), world.take()
    assert world.fail(first, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is FailureAction.SUCCEED
    error = ConnectionError("gone")
    verdict = world.queue.failed(second, error, 99.95, retry_until=100.0, backoff_s=0.1)
    assert verdict is FailureAction.FAIL


def test_at_most_five_batches_are_in_flight() -> None:
    world = World(6)
    for _ in range(5):
        world.take()
    assert world.queue.due_at(0.0) is None


def test_nothing_goes_to_a_new_leader_before_the_former_has_answered() -> None:
    """Its successor there would be out of order: the new leader may not have what is in flight."""
    world = World(3)
    world.queue.leader_id = 1
    first = world.take()
    assert world.queue.may_go_to(1)
    assert not world.queue.may_go_to(2)
    world.fail(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.queue.may_go_to(2)
    assert world.take() is first


def test_expired_batches_leave_the_queue() -> None:
    world = World(2)
    assert world.queue.expire(1.0) == world.batches
    assert world.queue.is_idle


def sent_batch(world: World, values: list[bytes]) -> ProducerBatch:
    """The world's next batch, with these values, sent."""
    batch = world.take()
    builder = BatchBuilder()
    for n, value in enumerate(values):
        builder.append(1000 + n, b"k%d" % n, value, [("h", b"x")])
    batch.count = len(values)
    batch.data = builder.build(compression=Compression.ZSTD)
    return batch


def test_the_parts_of_a_split_batch_take_its_place_and_its_sequences() -> None:
    world = World(3)
    for batch, count in zip(world.batches, (2, 4, 1), strict=True):
        batch.count = count
    first, second = world.take(), sent_batch(world, [bytes([n]) * 100 for n in range(4)])
    third = world.take()
    assert world.fail(second, ErrorCode.MESSAGE_TOO_LARGE) is FailureAction.SPLIT
    parts = split_batch(second)
    world.queue.replace(second, parts)
    world.fail(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.fail(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    again = []
    for _ in range(4):
        again.append(world.take())
        world.queue.succeeded(again[-1])
    assert again == [first, *parts, third]
    assert numbers(again) == [(0, 0), (0, 2), (0, 4), (0, 6)]
    assert [part.count for part in parts] == [2, 2]
    assert world.queue.is_idle


def test_a_record_is_found_in_the_part_that_it_was_sent_in() -> None:
    world = World(1)
    batch = sent_batch(world, [b"a" * 9, b"b" * 9, b"c" * 900, b"d" * 9])
    parts = split_batch(batch)
    assert [part.count for part in parts] == [2, 2]
    parts[1].data = parts[1].columns.builder().build()  # type: ignore[union-attr]
    later = split_batch(parts[1])
    assert [part.count for part in later] == [1, 1]
    assert [batch.locate(n) for n in range(4)] == [
        (parts[0], 0),
        (parts[0], 1),
        (later[0], 0),
        (later[1], 0),
    ]
    assert list(batch.leaves()) == [parts[0], *later]
    last = later[1].columns
    assert last is not None
    (record,) = read_records(last.builder().build())
    assert (record.timestamp, record.key, record.value) == (1003, b"k3", b"d" * 9)
    assert record.headers == [("h", b"x")]


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_a_single_record_is_not_split(code: ErrorCode) -> None:
    world = World(1)
    batch = world.take()
    batch.count = 1
    assert world.fail(batch, code) is FailureAction.FAIL


def test_a_batch_waits_from_the_end_of_its_linger_time_on() -> None:
    world = World(1)
    assert world.queue.waiting_since(9.0, 5.0) == 0.0
    world.queue.succeeded(world.take())
    assert world.queue.waiting_since(9.0, 5.0) is None
    world.queue.open = ProducerBatch(world.queue, None, 1.0)  # type: ignore[arg-type]
    assert world.queue.waiting_since(5.9, 5.0) is None
    assert world.queue.waiting_since(6.5, 5.0) == 6.0


def data_batch(offset: int, producer: int, *values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(0, None, value)
    return bytes(
        builder.build(
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer >= 0,
        )
    )


def marker(offset: int, producer: int, kind: ControlType) -> bytes:
    batch = build_marker(
        kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0
    )
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def test_aborted_records_are_hidden_until_their_marker_and_positions_pass_them() -> None:
    records = b"".join(
        [
            data_batch(0, 7, b"aborted"),
            data_batch(1, 8, b"kept"),
            marker(2, 7, ControlType.ABORT),
            data_batch(3, 7, b"kept too"),
            marker(4, 7, ControlType.COMMIT),
        ]
    )
    entry = PartitionFetchState("t", 0)
    entry.seek(0)
    assert entry.add_fetch(CompletedFetch(memoryview(records), 0, 5, [(7, 0)]), entry.stamp)
    got = []
    while entry.has_data:
        got += [r.value for r in entry.next_records(10, check_crcs=True)]
    assert got == [b"kept", b"kept too"]
    assert entry.position == 5


def test_the_response_to_a_fetch_before_a_seek_is_dropped() -> None:
    entry = PartitionFetchState("t", 0)
    entry.seek(0)
    stamp = entry.stamp
    entry.seek(3)
    assert not entry.add_fetch(CompletedFetch(memoryview(data_batch(0, -1, b"a")), 0, 1, []), stamp)
    assert not entry.has_data


def test_the_response_to_a_fetch_of_an_earlier_assignment_is_dropped() -> None:
    before, after = PartitionFetchState("t", 0), PartitionFetchState("t", 0)
    before.seek(0)
    after.seek(0)
    assert not after.add_fetch(
        CompletedFetch(memoryview(data_batch(7, -1, b"a")), 7, 8, []), before.stamp
    )
    assert after.fetch_offset == 0


BOMB = build_batch([(1000, b"k", bytes(100_000), ())], compression=Compression.ZSTD)


def test_a_batch_that_unpacks_to_too_much_is_named_with_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(UNPACKED_VARIABLE, "99999")
    entry = PartitionFetchState("t", 3)
    entry.seek(0)
    entry.add_fetch(CompletedFetch(memoryview(BOMB), 0, 1, []), entry.stamp)
    with pytest.raises(MessageTooLargeError) as caught:
        entry.next_records(10, check_crcs=True)
    with pytest.raises(CorruptRecordsError) as in_columns:
        entry.next_decoded(table.fetch_to_arrow)
    for message in (str(caught.value), str(in_columns.value)):
        for part in ("t-3: ", "batch at offset 0", "99999 bytes unpacked", UNPACKED_VARIABLE):
            assert part in message
    monkeypatch.setenv(UNPACKED_VARIABLE, "200000")
    assert [len(row.value or b"") for row in entry.next_records(10, check_crcs=True)] == [100_000]


def with_a_bad_batch() -> PartitionFetchState:
    bad = bytearray(data_batch(1, -1, b"bad"))
    bad[-1] ^= 1
    entry = PartitionFetchState("t", 0)
    entry.seek(0)
    records = memoryview(data_batch(0, -1, b"good") + bad + data_batch(2, -1, b"after"))
    entry.add_fetch(CompletedFetch(records, 0, 3, []), entry.stamp)
    return entry


def test_only_a_seek_passes_a_bad_batch() -> None:
    entry = with_a_bad_batch()
    assert [row.offset for row in entry.next_records(10, check_crcs=True)] == [0]
    for _ in range(2):
        with pytest.raises(KafkaError):
            entry.next_records(10, check_crcs=True)
        assert entry.position == 1


def test_only_a_seek_passes_a_bad_batch_decoded_as_a_whole_fetch() -> None:
    entry = with_a_bad_batch()
    for _ in range(2):
        with pytest.raises(CorruptRecordsError):
            entry.next_decoded(table.fetch_to_arrow)
        assert (entry.position, entry.has_data) == (0, True)


def test_a_fetch_in_the_middle_of_a_batch_returns_no_record_before_it() -> None:
    entry = PartitionFetchState("t", 0)
    entry.seek(2)
    entry.add_fetch(
        CompletedFetch(memoryview(data_batch(0, -1, b"a", b"b", b"c")), 2, 3, []), entry.stamp
    )
    assert [r.value for r in entry.next_records(10, check_crcs=True)] == [b"c"]


def test_the_position_has_the_epoch_of_the_batch_before_it() -> None:
    """Old batches have none."""
    batches = [bytearray(data_batch(n, -1, b"v")) for n in range(3)]
    for batch, epoch in zip(batches, (5, -1, 6), strict=True):
        batch[12:16] = epoch.to_bytes(4, "big", signed=True)
    entry = PartitionFetchState("t", 0)
    entry.seek(0)
    entry.add_fetch(CompletedFetch(memoryview(b"".join(batches)), 0, 3, [], 6), entry.stamp)
    found = []
    while entry.next_records(1, check_crcs=False):
        found.append(entry.leader_epoch)
    assert found == [5, 5, 6]
    entry.seek(0)
    assert entry.leader_epoch == -1


def test_a_seek_does_not_undo_a_required_epoch() -> None:
    entry = PartitionFetchState("t", 0)
    entry.seek(9, 7)
    entry.seek_by_timestamp(-2)
    assert (entry.leader_epoch, entry.required_epoch) == (-1, 7)


def test_aborted_filter_takes_transactions_in_offset_order() -> None:
    seen = AbortedFilter([(2, 50), (1, 10)])
    assert seen.is_aborted(1, 12)
    assert not seen.is_aborted(2, 12)
    seen.on_marker(1, ControlType.ABORT)
    assert not seen.is_aborted(1, 20)
    assert seen.is_aborted(2, 50)


def test_typed_errors_by_code() -> None:
    assert isinstance(kafka_error(10, "big"), MessageTooLargeError)
    assert kafka_error(32_000).code == ErrorCode.UNKNOWN_SERVER_ERROR
