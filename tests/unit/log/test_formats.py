"""The formats of Kafka's files, byte by byte."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from crc32c import crc32c

from headwater.testing.memory_files import MemoryFiles
from headwater_broker.log import checkpoint_files
from headwater_broker.log.index import OffsetIndex, TimeIndex
from headwater_broker.log.producer_snapshot_format import (
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from headwater_broker.log.producer_state_manager import ProducerEntry
from headwater_broker.log.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    decode_aborted,
)


def test_offset_index_bytes_and_floor() -> None:
    files = MemoryFiles()
    index = OffsetIndex(files, "/t-0/0.index", 368769)
    index.add(368770, 0)
    index.add(368775, 497)
    index.close()
    assert files.read("/t-0/0.index").hex() == "0000000100000000" + "00000006000001f1"
    again = OffsetIndex(files, "/t-0/0.index", 368769)
    assert [again.floor(o) for o in (368769, 368770, 368774, 368775, 10**15)] == [0, 0, 0, 497, 497]
    assert again.floor_position(496) == 0
    assert again.is_sane(498) and not again.is_sane(497)


def test_time_index_bytes_and_floor() -> None:
    files = MemoryFiles()
    index = TimeIndex(files, "/t-0/0.timeindex", 100)
    index.maybe_add(1000, 101)
    index.maybe_add(1000, 105)
    index.maybe_add(2000, 109)
    index.close()
    assert files.read("/t-0/0.timeindex") == struct.pack(">qiqi", 1000, 1, 2000, 9)
    again = TimeIndex(files, "/t-0/0.timeindex", 100)
    assert [again.floor(t) for t in (0, 1000, 1001, 2000, 2001)] == [100, 100, 101, 101, 109]
    assert again.last() == (2000, 109)


def test_transaction_index_bytes() -> None:
    files = MemoryFiles()
    index = TransactionIndex(files, "/t-0/0.txnindex", exists=False)
    entry = AbortedTransaction(9, 10, 20, 15)
    index.add(entry)
    data = files.read("/t-0/0.txnindex")
    assert data == struct.pack(">hqqqq", 0, 9, 10, 20, 15)
    assert decode_aborted(data + b"torn") == [entry]


@pytest.mark.parametrize("kept", [0, 1])
def test_what_follows_a_torn_aborted_transaction_can_be_read(kept: int) -> None:
    files = MemoryFiles()
    first, second = AbortedTransaction(9, 10, 20, 15), AbortedTransaction(9, 30, 40, 41)
    files.write_atomic("/t-0/0.txnindex", struct.pack(">hqqqq", 0, *first) * kept + b"\0" * 20)
    index = TransactionIndex(files, "/t-0/0.txnindex", exists=True)
    index.truncate(1000)  # as a start does that scans the segment
    index.add(second)
    assert decode_aborted(files.read("/t-0/0.txnindex")) == [*[first][:kept], second]


def test_producer_snapshot_bytes() -> None:
    entry = ProducerEntry(7, 2)
    entry.coordinator_epoch, entry.last_timestamp = 4, -1
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, -1, -1, 0, -1, 4, -1)
    data = encode_snapshot([entry])
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    (decoded,) = decode_snapshot(data)
    assert (decoded.producer_id, decoded.epoch, decoded.batches) == (7, 2, [])
    for bad in (data[:-1], data[:8], b"\0\2" + data[2:], data[:-1] + b"x"):
        with pytest.raises(SnapshotError):
            decode_snapshot(bad)


def test_checkpoints_as_text() -> None:
    data = checkpoint_files.encode_offsets({("b-c", 1): 5, ("a", 0): 2})
    assert data == b"0\n2\na 0 2\nb-c 1 5\n"
    assert checkpoint_files.decode_offsets(data) == {("b-c", 1): 5, ("a", 0): 2}
    assert checkpoint_files.encode_epochs([(1, 0), (3, 9)]) == b"0\n2\n1 0\n3 9\n"
    assert checkpoint_files.decode_epochs(b"0\n1\n3 9\n") == [(3, 9)]
    for bad in (b"", b"x\n0\n", b"0\n2\na 0 2\n", b"0\n1\nx\n"):
        with pytest.raises(checkpoint_files.CheckpointError):
            checkpoint_files.decode_offsets(bad)
    topic_id = UUID(int=1)
    data = checkpoint_files.encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\ntells_gaps: true\n"
    assert checkpoint_files.decode_partition_metadata(data) == topic_id
    assert checkpoint_files.decode_tells_gaps(data)
    data = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    assert checkpoint_files.decode_partition_metadata(data) == topic_id, "as Kafka writes it"
    assert not checkpoint_files.decode_tells_gaps(data)
