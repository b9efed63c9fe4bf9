"""Produce names the records for which it refuses a batch (KIP-467)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.records.builder import build_batch
from headwater.records.compression import Compression
from headwater.system import SystemClock
from headwater.wire.apis.k00_produce import ProduceResponse
from headwater_broker.log.log_validator import RECORD_ERRORS_MAX
from solo_broker import SoloBroker
from unit.network.test_data_plane import produce_request, serve

KEYLESS = tuple(range(3, 100, 10))
DAY_MS = 86_400_000
COMPACTED = {"cleanup.policy": "compact"}


def keyed(now_ms: int, count: int, keyless: tuple[int, ...], codec: Compression) -> bytes:
    rows = [(now_ms, None if n in keyless else b"k", b"v", ()) for n in range(count)]
    return bytes(build_batch(rows, compression=codec))


async def refused(c: Connection, topic: str, data: bytes, version: int = 9, **key: Any) -> Any:
    request = produce_request(topic, data, **key)
    [response] = (await c.call(request, ProduceResponse, version=version)).responses
    [row] = response.partition_responses
    assert row.base_offset == -1
    return row


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("version", [7, 8, 9, 13])
def test_records_without_a_key_are_named(tmp_path: Path, version: int, codec: Compression) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", configs=COMPACTED)
        data = keyed(SystemClock().now_ms(), 100, KEYLESS, codec)
        key: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {}
        row = await refused(c, "" if key else "t", data, version, **key)
        assert row.error_code == ErrorCode.INVALID_RECORD
        if version < 8:
            assert row.record_errors == () and row.error_message is None
        else:
            assert tuple(error.batch_index for error in row.record_errors) == KEYLESS
            texts = {error.batch_index_error_message for error in row.record_errors}
            assert texts == {
                "Compacted topic cannot accept message without key in topic partition t-0."
            }
            assert "for 10 invalid records: record 3: Compacted topic" in row.error_message
        assert broker.replicas.partitions["t", 0].log.log_end_offset == 0

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("config", "at"),
    [
        ({"message.timestamp.after.max.ms": "3600000"}, DAY_MS),
        ({"message.timestamp.before.max.ms": "3600000"}, -DAY_MS),
        ({"message.timestamp.after.max.ms": "3600000", **COMPACTED}, DAY_MS),
    ],
    ids=["after", "before", "compacted"],
)
def test_records_out_of_their_time_are_named(
    tmp_path: Path, config: dict[str, str], at: int
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", configs=config)
        now_ms = SystemClock().now_ms()
        rows = [(now_ms + (at if n in (1, 4) else 0), b"k", b"v", ()) for n in range(6)]
        row = await refused(c, "t", bytes(build_batch(rows)))
        assert row.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in row.record_errors] == [1, 4]
        text = row.record_errors[0].batch_index_error_message
        assert text.startswith(f"Timestamp {now_ms + at} of message with offset 1 is out of range.")

    serve(tmp_path, scenario)


def test_a_timestamp_decides_the_code_and_a_key_comes_first_in_a_record(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", configs={**COMPACTED, "message.timestamp.after.max.ms": "1000"})
        now_ms = SystemClock().now_ms()
        rows = [
            (now_ms, b"k", b"v", ()),
            (now_ms + DAY_MS, None, b"v", ()),
            (now_ms + DAY_MS, b"k", b"v", ()),
        ]
        row = await refused(c, "t", bytes(build_batch(rows)))
        assert row.error_code == ErrorCode.INVALID_TIMESTAMP
        first, second = row.record_errors
        assert first.batch_index_error_message.startswith("Compacted topic")
        assert second.batch_index_error_message.startswith("Timestamp")

    serve(tmp_path, scenario)


def test_a_batch_of_nothing_but_invalid_records_names_some(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", configs=COMPACTED)
        count = RECORD_ERRORS_MAX + 5
        data = keyed(SystemClock().now_ms(), count, tuple(range(count)), Compression.NONE)
        row = await refused(c, "t", data)
        assert len(row.record_errors) == RECORD_ERRORS_MAX
        assert f"for {count} invalid records" in row.error_message

    serve(tmp_path, scenario)
