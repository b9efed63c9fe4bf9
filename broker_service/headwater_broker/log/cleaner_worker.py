"""The process that compacts: `python -m headwater_broker.log.cleaner_worker PARENT`, niced.

Compaction runs Python code per record, which in a thread would take the interpreter from the
broker's loop. Each line of stdin is a job in JSON, each line of stdout its result or its error. The
process ends at EOF.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from time import sleep
from typing import Any

from headwater.clock import Clock
from headwater.errors import KafkaError
from headwater.ports.files import Files
from headwater.system import SystemClock
from headwater.system_files import SystemFile, SystemFiles
from headwater_broker.log.compaction_job import CleanedSegment as Cleaned
from headwater_broker.log.compaction_job import CleanError, CleanJob, CleanResult, clean
from headwater_broker.runtime.process import die_with_parent

NICENESS = 19


class ExistingFolders(SystemFiles):
    """Creates no folder: a missing one was deleted or renamed, and must not come back."""

    def open(self, path: str, *, must_exist: bool = False) -> SystemFile:
        """Open a file. Raises FileNotFoundError when its folder does not exist."""
        return SystemFile(path, must_exist=must_exist)


class IoThrottle:
    """Limits reads and writes to a rate (log.cleaner.io.max.bytes.per.second)."""

    def __init__(self, clock: Clock, pause: Callable[[float], None], bytes_per_s: float) -> None:
        self._clock = clock
        self._pause = pause
        self._bytes_per_s = bytes_per_s
        self._started = clock.monotonic()
        self._total = 0

    def __call__(self, size: int) -> None:
        """Count `size` bytes, and wait until the rate allows them."""
        self._total += size
        ahead_s = self._total / self._bytes_per_s - (self._clock.monotonic() - self._started)
        if ahead_s > 0:
            self._pause(ahead_s)


def encode_job(job: CleanJob) -> bytes:
    """A job as a line for the worker."""
    fields = asdict(job)
    fields["producers"] = base64.b64encode(job.producers).decode()
    return json.dumps(fields).encode()


def decode_result(data: bytes) -> CleanResult:
    """The result in a line of the worker. Raises CleanError or OSError when the line carries one,
    ValueError when the line is anything else."""
    answer = json.loads(data)
    if "uncleanable" in answer:
        raise CleanError(answer["uncleanable"])
    if "failed" in answer:
        raise OSError(answer["failed"])
    fields: dict[str, Any] = answer["result"]
    segments = [Cleaned(**segment) for segment in fields.pop("segments")]
    return CleanResult(segments=segments, **fields)


def answer_to(data: bytes, files: Files, clock: Clock, pause: Callable[[float], None]) -> bytes:
    """Run the job in the line `data`; the line to answer."""
    fields: dict[str, Any] = json.loads(data)
    fields["producers"] = base64.b64decode(fields["producers"])
    job = CleanJob(**fields)
    answer: dict[str, Any]
    try:
        answer = {"result": asdict(clean(files, job, IoThrottle(clock, pause, job.io_bytes_per_s)))}
    except (CleanError, KafkaError) as e:
        answer = {"uncleanable": str(e)}
    except OSError as e:
        answer = {"failed": str(e)}
    return json.dumps(answer).encode()


def main() -> None:
    """Run the jobs of stdin one after the other."""
    die_with_parent()
    if os.getppid() != int(sys.argv[1]):
        return  # the parent died before this process asked to die with it
    os.nice(NICENESS)
    for job in sys.stdin.buffer:
        sys.stdout.buffer.write(answer_to(job, ExistingFolders(), SystemClock(), sleep) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
