"""One run of the city's vehicle ingest, killed (SIGKILL of its whole process group) where told.

python city_ingest_worker.py SERVERS FOLDER before-write|after-write|never
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from city import ingest
from city.clock import CityClock
from city.fields import VEHICLES
from city.flows import Site
from headwater.system import SystemClock
from integration.spark_sessions import spark_session


def killing(store: Callable[..., Any], when: str) -> Callable[..., Any]:
    """`ingest.store` whose function dies at the first batch with rows, before or after it wrote."""

    def wrapped(*arguments: Any, **options: Any) -> Any:
        write = store(*arguments, **options)

        def batch(rows: Any, epoch_id: int) -> None:
            has_rows = not rows.isEmpty()
            if has_rows and when == "before-write":
                os.killpg(0, signal.SIGKILL)
            write(rows, epoch_id)
            if has_rows and when == "after-write":
                os.killpg(0, signal.SIGKILL)

        return batch

    return wrapped


def main(servers: str, folder: str, when: str) -> None:
    """Ingest until everything is stored, or die."""
    if when != "never":
        ingest.store = killing(ingest.store, when)  # type: ignore[assignment]
    reach = {"kafka.bootstrap.servers": servers}
    site = Site("A", servers, Path(folder, "tables"), reach)
    clock = CityClock.starting(SystemClock(), 150.0)
    with spark_session("local[2]", delta=True) as spark:
        query = ingest.start_query(spark, VEHICLES, site, clock, merge=False)
        query.processAllAvailable()
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
