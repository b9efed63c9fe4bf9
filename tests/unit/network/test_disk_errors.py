"""Disk errors while a request is handled: an error of that partition, not of the connection."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import AT_BATCH_LENGTH
from headwater.system_files import SystemFile, SystemFiles
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater_broker.log.log_segment import SCAN_BYTES
from headwater_broker.replica.partition import Partition
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, produce, serve


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_that_are_found_but_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    read_at = SystemFile.read_at

    def fail(self: SystemFile, position: int, size: int) -> bytes:
        if size > SCAN_BYTES:
            raise OSError(errno.EIO, "input/output error", self.path)
        return read_at(self, position, size)

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("bad")
        for _ in range(3):
            await produce(c, "bad", batch(5, 1000))
        assert (await fetch(c, "bad", 0, version=version)).error_code == 0
        monkeypatch.setattr(SystemFile, "read_at", fail)
        row = await fetch(c, "bad", 0, version=version)
        # Clients of before version 6 do not know KAFKA_STORAGE_ERROR.
        is_known = version >= 6
        expected = ErrorCode.KAFKA_STORAGE_ERROR if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (row.error_code, row.high_watermark) == (expected, -1)
        assert not row.records
        assert broker.logs.offline_directories == [str(tmp_path)]

    serve(tmp_path, scenario)


def test_a_read_that_only_counts_may_fail_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no longer fits into max_bytes counts for min_bytes: it is looked at a second time."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("bad")
        size = len(batch(5, 1000))
        for _ in range(3):
            await produce(c, "bad", batch(5, 1000))
        read, calls = Partition.read, []

        def fail(self: Partition, *args: Any) -> Any:
            calls.append(args)
            if len(calls) > 1:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "injected")
            return read(self, *args)

        monkeypatch.setattr(Partition, "read", fail)
        row = await fetch(c, "bad", 0, max_bytes=size + 1, min_bytes=size + 1, max_wait_ms=10_000)
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not row.records

    serve(tmp_path, scenario)


def test_a_time_that_is_looked_for_on_a_failing_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: SystemFile, position: int, size: int) -> bytes:
        raise OSError(errno.EIO, "input/output error", self.path)

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("bad")
        await produce(c, "bad", batch(5))
        monkeypatch.setattr(SystemFile, "read_at", fail)
        rows = (ListOffsetsPartition(partition_index=0, timestamp=1),)
        topics = (ListOffsetsTopic(name="bad", partitions=rows),)
        reply = await c.call(ListOffsetsRequest(topics=topics), ListOffsetsResponse, version=7)
        row = reply.topics[0].partitions[0]
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.logs.offline_directories == [str(tmp_path)]

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_damaged_batch_fails_its_partition_and_nothing_else(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        for topic in ("bad", "good"):
            broker.create_topic(topic)
            for _ in range(3):
                await produce(c, topic, batch(5, 1000))
        path = next(tmp_path.glob("bad-0/*.log"))
        with path.open("r+b") as file:
            file.seek(len(batch(5, 1000)) + AT_BATCH_LENGTH)
            file.write(b"\x7f")
        row = await fetch(c, "bad", 5, version=version)
        assert row.error_code == ErrorCode.CORRUPT_MESSAGE
        rows = (ListOffsetsPartition(partition_index=0, timestamp=1_795_000_000_004),)
        topics = (ListOffsetsTopic(name="bad", partitions=rows),)
        reply = await c.call(ListOffsetsRequest(topics=topics), ListOffsetsResponse, version=7)
        assert reply.topics[0].partitions[0].error_code == 0, "what lies before is found"
        row = await fetch(c, "good", 5, version=version)
        assert (row.error_code, bool(row.records)) == (0, True)
        assert broker.logs.offline_directories == []

    serve(tmp_path, scenario)


def test_a_replica_that_lacks_descriptors_for_a_moment_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SystemFiles, path: str, **_: object) -> SystemFile:
        raise OSError(errno.EMFILE, "too many open files", path)

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", configs={"segment.bytes": "16384"})
        await produce(c, "t", batch(15, 1000))
        with monkeypatch.context() as patch:
            patch.setattr(SystemFiles, "open", refuse)
            row = await produce(c, "t", batch(5, 1000))
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR, "no new segment: to be retried"
        row = await produce(c, "t", batch(5, 1000))
        assert (row.error_code, row.base_offset) == (0, 15)
        assert broker.logs.offline_directories == []

    serve(tmp_path, scenario)
