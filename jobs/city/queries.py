"""Streaming queries of the city: started one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from headwater.clock import Clock

STARTING = ("Initializing sources", "Initializing StreamExecution")
START_TIMEOUT_S = 60.0
POLL_S = 0.1


def started(query: StreamingQuery, clock: Clock) -> StreamingQuery:
    """Wait until a query's sources are initialised; Spark gives the Python planner of each source
    ten seconds to start, which several at once on two cores can miss. Raises the query's error."""
    _wait(query, clock, lambda: query.status["message"] not in STARTING)
    return query


def first_batch(query: StreamingQuery, clock: Clock) -> None:
    """Wait until a query has finished its first batch, the slowest one. Raises its error."""
    _wait(query, clock, lambda: query.lastProgress is not None)


def _wait(query: StreamingQuery, clock: Clock, is_done: Callable[[], bool]) -> None:
    end = clock.monotonic() + START_TIMEOUT_S
    while not is_done() and clock.monotonic() < end:
        if not query.isActive:
            query.awaitTermination(1)
        threading.Event().wait(POLL_S)


def save_progress(query: StreamingQuery, folder: Path) -> None:
    """Write the progress of a query's batches to a file, a JSON object a line, to look into."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [progress.json.replace("\n", "") + "\n" for progress in query.recentProgress]
    (folder / f"{query.name}.jsonl").write_text("".join(lines))
