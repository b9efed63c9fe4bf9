"""A consumer with auto-commit that writes lines to a file, and dies where told.

    python auto_commit_worker.py SERVERS TOPIC FILE before-write|after-write|never

It polls once. `before-write`: it dies when the offsets have been committed behind its back, and
nothing is written. `after-write`: it dies when the lines are written, and nothing is committed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headwater import Consumer
from headwater.system import SystemClock

GROUP = "high-level"
SOON_MS, LATE_MS = 50, 3_600_000
WAIT_S = 60.0


def main(servers: str, topic: str, file: str, when: str) -> None:
    """Consume what is there, or die after the first records."""
    clock = SystemClock()
    with (
        Path(file).open("ab") as lines,
        Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            auto_commit_interval_ms=LATE_MS if when == "after-write" else SOON_MS,
            max_poll_records=100,
            group_instance_id="reader",  # a static member: the next run has its partitions at once
        ) as consumer,
    ):
        until_s = clock.monotonic() + WAIT_S
        quiet = 0
        while clock.monotonic() < until_s and quiet < 3:
            found = [r for rows in consumer.poll(timeout_ms=500).values() for r in rows]
            quiet = 0 if found or not consumer.assignment() else quiet + 1
            if found and when == "before-write":
                consumer.pause(*consumer.assignment())
                while not any(consumer.committed(p) for p in consumer.assignment()):
                    consumer.poll(timeout_ms=50)
                os.kill(os.getpid(), signal.SIGKILL)
            lines.write(b"".join(r.value + b"\n" for r in found))
            lines.flush()
            if found and when == "after-write":
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
