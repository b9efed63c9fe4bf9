"""Reads a topic's records from its Delta table, as the message browser reads them from brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.client.values import ConsumerRecord, Headers
from headwater.errors import UsageError
from headwater_gateway.console.offset_spans import Span
from headwater_tier.delta import table_exists
from headwater_tier.reader import TableReader
from headwater_tier.table_names import TableLocation

RECORDS_AT_ONCE = 4_000


class TableSource:
    """The newest version of a log table (`headwater_gateway.console.messages.scan.Source`)."""

    def __init__(self, reader: TableReader, topic: str) -> None:
        self._reader = reader
        self.topic = topic
        self.shown = f"Delta table, version {reader.snapshot.version}"
        """What is read, for people."""

    @classmethod
    async def open(cls, location: TableLocation) -> TableSource:
        """Open it. Raises UsageError without a table, TableAccessError, TableStateError."""
        if not await asyncio.to_thread(table_exists, location):
            raise UsageError(
                f"topic {location.topic} has no table at {location.uri} yet: set its config"
                " remote.storage.enable=true, and run `headwater tier serve`"
            )
        return cls(await asyncio.to_thread(TableReader, location), location.topic)

    async def bounds(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Log start and tiered end of each partition; of one that is not tiered, nothing."""
        snapshot = self._reader.snapshot
        found = {}
        for partition in partitions:
            end = snapshot.ends.get(partition, 0)
            found[partition] = (min(end, snapshot.starts.get(partition, 0)), end)
        return found

    async def at_time(self, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int | None]:
        """The first offset at or after a time; None where no record is."""
        found: dict[int, int | None] = {}
        for partition in partitions:
            start, end = (await self.bounds([partition]))[partition]
            at = await asyncio.to_thread(self._reader.first_at, partition, timestamp_ms, start, end)
            found[partition] = None if at is None else at[0]
        return found

    async def spans(self, spans: Sequence[Span]) -> AsyncGenerator[list[ConsumerRecord], None]:
        """The records of these offsets, a partition after the other."""
        for span in spans:
            offset = span.start
            while offset < span.end:
                found = await asyncio.to_thread(self._reader.read, span.partition, offset)
                records = await asyncio.to_thread(
                    records_of, found.rows, self.topic, offset, span.end
                )
                for at in range(0, len(records), RECORDS_AT_ONCE):
                    yield records[at : at + RECORDS_AT_ONCE]
                offset = max(found.end_offset, offset + 1)

    def tail(self, starts: Mapping[int, int]) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Raises UsageError: a table's rows come in commits."""
        raise UsageError("a table has no live tail: read the topic, src=log")


def records_of(rows: pa.RecordBatch, topic: str, start: int, end: int) -> list[ConsumerRecord]:
    """The rows of a log table in [start, end) as the records that they were."""
    found = []
    for row in rows.to_pylist() if rows.num_rows else ():
        if start <= row["offset"] < end:
            found.append(_record(row, topic))
    return found


def _record(row: Mapping[str, Any], topic: str) -> ConsumerRecord:
    raw, instant = row["timestamp_raw"], row["timestamp"]
    timestamp = raw if raw is not None else -1
    if raw is None and instant is not None:
        timestamp = round(instant.timestamp() * 1000)
    headers: Headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
    if row["headers_raw"] is not None:
        headers.append(("(headers that are no UTF-8)", row["headers_raw"]))
    epoch = row["leader_epoch"]
    return ConsumerRecord(
        topic,
        row["partition"],
        row["offset"],
        timestamp,
        row["timestamp_type"] or 0,
        row["key"],
        row["value"],
        headers,
        -1 if epoch is None else epoch,
    )
