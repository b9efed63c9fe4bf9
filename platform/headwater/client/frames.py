"""A topic as a frame: Arrow, pandas, polars, or SQL by DuckDB, in one call.

    from headwater.frames import read_topic

    flights = read_topic("flights", bootstrap_servers="127.0.0.1:9092", text=True)
    flights.query("SELECT key, count(*) FROM flights GROUP BY key").show()

What is read ends where the topic ended at the call. The columns are those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.client.aio.keywords import ConsumerKeywords
from headwater.client.consumer import Consumer
from headwater.client.errors import KafkaTimeoutError, OptionError
from headwater.client.record_sending import to_timestamp
from headwater.client.table import join_batches
from headwater.client.values import TopicPartition
from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.extras import install_hint
from headwater.system import SystemClock

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

Place = int | datetime | Mapping[int, int] | None
"""A time (ms since 1970, or with a time zone), or partition -> offset; None: the topic's own."""
POLL_MS = 500
STALL_MS = 60_000
"""A read without a record for so long has failed."""
BATCH_ROWS = 1_000_000


class TopicFrame:
    """Records of one topic, in memory."""

    def __init__(self, topic: str, table: pa.Table) -> None:
        self.topic = topic
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's interface: other libraries take the frame as it is."""
        return self._table.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """A pyarrow Table."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """A pandas DataFrame. Needs pandas."""
        try:
            return self._table.to_pandas()
        except ImportError as error:
            raise UsageError(f"to_pandas needs pandas: {install_hint('spark')}") from error

    def to_polars(self) -> pl.DataFrame:
        """A polars DataFrame. Needs polars."""
        try:
            import polars  # noqa: PLC0415 - optional
        except ImportError as error:
            raise UsageError("to_polars needs polars: pip install polars") from error
        frame = polars.from_arrow(self._table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def query(
        self, sql: str, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The result of SQL by DuckDB, where the topic is a view of its own name; in double quotes
        if that is no plain word. `connection`: by default one of its own. Needs the extra `sql`."""
        try:
            import duckdb  # noqa: PLC0415 - optional extra
        except ImportError as error:
            raise UsageError(f"query needs duckdb: {install_hint('sql')}") from error
        target = duckdb.connect() if connection is None else connection
        target.register(self.topic, self._table)
        return target.sql(sql)


def read_topic(
    topic: str,
    *,
    bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
    start: Place = None,
    end: Place = None,
    partitions: Sequence[int] | None = None,
    text: bool = False,
    **options: Unpack[ConsumerKeywords],
) -> TopicFrame:
    """Read a topic from `start` (by default its beginning) up to `end`, exclusive (by default its
    end now). `text`: key and value as strings instead of bytes. `options`: of `Consumer`.

    Raises UsageError for a value that is no UTF-8 with `text`, KafkaTimeoutError when nothing comes
    for 60 s, and what `Consumer` raises.
    """
    parts: list[Any] = []
    options.setdefault("auto_offset_reset", "earliest")
    with Consumer(bootstrap_servers=bootstrap_servers, **options) as consumer:
        count = consumer.partitions_for(topic)
        chosen = range(count) if partitions is None else partitions
        places = [TopicPartition(topic, p) for p in chosen]
        begins = _offsets(consumer, "start", places, start, consumer.beginning_offsets(places))
        ends = _offsets(consumer, "end", places, end, consumer.end_offsets(places))
        parts += read_ranges(consumer, begins, ends, SystemClock())
    table = pa.Table.from_batches(parts or [join_batches([])])
    return TopicFrame(topic, _as_text(table, topic) if text else table)


def _offsets(
    consumer: Consumer,
    name: str,
    places: list[TopicPartition],
    wanted: Place,
    otherwise: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The offset of each partition; a time beyond the last record is the end."""
    if wanted is None:
        return otherwise
    if isinstance(wanted, Mapping):
        return {p: int(wanted.get(p.partition, otherwise[p])) for p in places}
    if isinstance(wanted, str):
        raise OptionError(f"{name} is {wanted!r}: give a time, or partition -> offset")
    at = to_timestamp(wanted)
    found = consumer.offsets_for_times(dict.fromkeys(places, at))
    last = consumer.end_offsets(places)
    return {p: last[p] if (row := found[p]) is None else row.offset for p in places}


def read_ranges(
    consumer: Consumer,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    clock: Clock,
) -> Iterator[Any]:
    """Record batches of one topic until each partition is read from its begin up to its end,
    exclusive; the consumer is assigned these partitions. Raises KafkaTimeoutError when nothing
    comes for 60 s."""
    consumer.assign(list(ends))
    for place in ends:
        consumer.resume(place)  # a read before may have paused it at its end
        consumer.seek(place, begins[place])
    limits = np.zeros(1 + max((p.partition for p in ends), default=0), np.int64)
    for place, end in ends.items():
        limits[place.partition] = end
    last = clock.monotonic()
    while True:
        positions = consumer.positions()
        left = [p for p, end in ends.items() if p not in positions or positions[p].offset < end]
        if not left:
            return
        consumer.pause(*(p for p in ends if p not in left))
        batch = consumer.poll_arrow(BATCH_ROWS, POLL_MS)
        now = clock.monotonic()
        if batch.num_rows:
            last = now
            where = batch.column("partition").to_numpy(zero_copy_only=False)
            yield batch.filter(pc.less(batch.column("offset"), pa.array(limits[where])))
        elif (now - last) * 1000 >= STALL_MS and consumer.positions() == positions:
            names = ", ".join(f"{p.topic}-{p.partition} at {positions[p].offset}" for p in left)
            raise KafkaTimeoutError(f"nothing came for {STALL_MS} ms: {names}")


def _as_text(table: pa.Table, topic: str) -> pa.Table:
    for name in ("key", "value"):
        index = table.schema.get_field_index(name)
        try:
            column = table.column(index).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise UsageError(f"{topic}: a {name} is no UTF-8: leave out text ({error})") from None
        table = table.set_column(index, name, column)
    return table
