"""Starts the city's streaming queries, one after the other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from headwater.clock import Clock

logger = logging.getLogger(__name__)

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


def abandon(query: StreamingQuery) -> None:
    """Stop a query whose site is lost, without waiting: a micro-batch that was being committed
    waits for its coordinator to tell the outcome, and may do so for good."""
    name = f"city-abandon-{query.name}"
    threading.Thread(target=_stop_quietly, args=(query,), name=name, daemon=True).start()


def _stop_quietly(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (Py4JError, PySparkException) as e:
        logger.info("%s ended with %r", query.name, e)  # its site is lost, or Spark has ended
