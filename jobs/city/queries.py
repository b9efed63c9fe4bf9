"""Streaming queries of the city: started one after the other."""

from __future__ import annotations

import threading

from pyspark.sql.streaming.query import StreamingQuery

from headwater.clock import Clock

STARTING = ("Initializing sources", "Initializing StreamExecution")
START_TIMEOUT_S = 60.0
POLL_S = 0.1


def started(query: StreamingQuery, clock: Clock) -> StreamingQuery:
    """Wait until a query's sources are initialised; Spark gives the Python planner of each source
    ten seconds to start, which several at once on two cores can miss. Raises the query's error."""
    end = clock.monotonic() + START_TIMEOUT_S
    while query.status["message"] in STARTING and clock.monotonic() < end:
        if not query.isActive:
            query.awaitTermination(1)
        threading.Event().wait(POLL_S)
    return query
