"""`python -m headwater_broker.testing`: how long a broker takes to be ready in this process.

Wall time, and the process's CPU time, which a busy machine does not change.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STARTS = 20


@contextmanager
def _measured(rows: list[tuple[float, float]]) -> Iterator[None]:
    wall, used = time.perf_counter(), time.process_time()
    yield
    rows.append((time.perf_counter() - wall, time.process_time() - used))


def _line(name: str, rows: list[tuple[float, float]]) -> str:
    wall, used = (sorted(column)[len(rows) // 2] * 1000 for column in zip(*rows, strict=True))
    return f"{name:<28}{wall:8.1f} ms{used:10.1f} ms"


def main(out: Callable[[str], Any] = sys.stdout.write) -> None:
    """Measure and print; later starts are medians."""
    imports: list[tuple[float, float]] = []
    first: list[tuple[float, float]] = []
    later: list[tuple[float, float]] = []
    topics: list[tuple[float, float]] = []
    stops: list[tuple[float, float]] = []
    with _measured(imports):
        from headwater_broker.api.registry import load_handlers  # noqa: PLC0415 - it is measured
        from headwater_broker.testing.broker import InProcessBroker  # noqa: PLC0415

        load_handlers()
    for number in range(STARTS):
        broker = InProcessBroker()
        with _measured(first if number == 0 else later):
            broker.start()
        if number:
            with _measured(topics):
                broker.topic()
        with _measured(stops):
            broker.stop()
        broker.check()
    out(f"{'':<28}{'wall':>8}   {'CPU':>10}\n")
    for name, rows in (
        ("import", imports),
        ("first broker ready", first),
        ("a later broker ready", later),
        ("a topic", topics),
        ("stop", stops),
    ):
        out(_line(name, rows) + "\n")


if __name__ == "__main__":
    main()
