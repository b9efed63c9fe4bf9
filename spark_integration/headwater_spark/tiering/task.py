"""One tiering task: fetches committed ranges, decodes them, writes one Parquet file. No pyspark.

Runs in executors' tasks inside `mapInArrow`; returns the file's facts to the driver, never rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.client.blocking.record_client import RecordClient
from headwater.system import SystemClock, SystemEntropy
from headwater_spark.blocking_clients import record_client
from headwater_spark.task_security import NO_SECURITY, TaskSecurity
from headwater_spark.worker_errors import without_traceback
from headwater_tier.commit_fence import FileFacts
from headwater_tier.data_files import tier_range
from headwater_tier.offset_ranges import TierRange
from headwater_tier.stream_fetch import StreamFetch
from headwater_tier.table_names import TableLocation

CLIENT_ID = "headwater-tier"
FACTS_SCHEMA = "facts BINARY"
_ARROW_SCHEMA = pa.schema([pa.field("facts", pa.binary())])

# A worker process runs many tasks; connections stay open between rounds.
_clients: dict[tuple[str, TaskSecurity], RecordClient] = {}


@dataclass(frozen=True, slots=True)
class TierTask:
    """The ranges of one task. Picklable."""

    bootstrap_servers: str
    location: TableLocation
    ranges: tuple[TierRange, ...]
    security: TaskSecurity = NO_SECURITY


def run_task(task: TierTask) -> FileFacts | None:
    """Write the task's file and return its facts; None when its ranges have no rows."""
    place = task.bootstrap_servers, task.security
    client = _clients.pop(place, None)
    if client is None:
        client = record_client(task.bootstrap_servers, CLIENT_ID, security=task.security)
    fetch = StreamFetch(client, task.location.topic, task.ranges)
    facts = tier_range(
        fetch, task.ranges, task.location, clock=SystemClock(), entropy=SystemEntropy()
    )
    _clients[place] = client  # only after success: no reply is pending
    return facts


def arrow_tasks(
    tasks: Sequence[TierTask],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` over `spark.range`: row `id` runs task `id`."""

    def fetch_decode_write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with without_traceback():
                    facts = run_task(tasks[number])
                if facts is not None:
                    yield pa.record_batch([pa.array([pickle.dumps(facts)])], schema=_ARROW_SCHEMA)

    return fetch_decode_write


def unpack(facts: bytes) -> FileFacts:
    """The facts in a task's result row."""
    found: FileFacts = pickle.loads(facts)
    return found
