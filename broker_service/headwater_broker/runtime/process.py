"""The broker's process: signals, end of its parent, stdin, logging, garbage collection."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import logging.handlers
import os
import platform
import queue
import resource
import signal
import stat
import struct
import sys
from collections.abc import Callable
from typing import Protocol

from headwater_broker.runtime.watchdog import Watchdog

PR_SET_PDEATHSIG = 1
SWITCH_INTERVAL_S = 0.0005
"""After this another thread gets the interpreter: gRPC and kazoo answer within a millisecond."""
SLICE_NS = 300_000
"""Scheduling slice that the broker requests; Linux gives 3 ms by default."""
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")
GC_THRESHOLDS = (2_000, 5, 1_000_000)
"""A young collection visits 2,000 objects (under a millisecond), a middle one 10,000. The old
generation is collected by `InterpreterTuning.tick`: after a burst it may have a hundred thousand
parked requests."""
OLD_OBJECTS_MAX = 2_000
"""An old generation up to this size is collected within 5 ms even on a slow core (seen: 17 ms at
5,000)."""
TICKS_UNTIL_FORCED = 360
LOG_QUEUE_MAX = 10_000
STDIN_CHUNK_BYTES = 4096


def is_managed() -> bool:
    """Whether a supervisor holds stdin: it is a pipe or socket, not a terminal or a file."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def die_with_parent() -> None:
    """Request SIGTERM from the kernel when the parent thread dies: EOF on stdin may be late."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def ask_for_short_slices() -> bool:
    """Request a short scheduling slice from the kernel; whether it was granted.

    The broker works briefly and often: with a short slice it runs before tasks that compute for
    long, such as Spark's on the same machine, without a larger share of the core. Linux since 6.12
    (EEVDF) allows that to any process; later threads inherit it. Elsewhere nothing happens.
    """
    number = SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, 0, nice, 0, SLICE_NS, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    failed: int = ctypes.CDLL(None, use_errno=True).syscall(number, 0, buffer, 0)
    return failed == 0


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: each replica and each connection has one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def watch_stop(loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> None:
    """Call `stop(reason)` on SIGTERM, SIGINT or (managed) stdin's end. SIGHUP is ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    loop.add_signal_handler(signal.SIGTERM, stop, "SIGTERM")
    loop.add_signal_handler(signal.SIGINT, stop, "SIGINT")
    if not is_managed():
        return
    os.set_blocking(0, False)

    def readable() -> None:
        try:
            data = os.read(0, STDIN_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(0)
            stop("end of stdin")

    loop.add_reader(0, readable)


class ProcessTuning(Protocol):
    """Settings of the process that keep the loop's turns short; the simulator's does nothing."""

    def loaded(self) -> None:
        """Call when the logs are loaded, before a client is served."""
        ...

    def started(self, loop: asyncio.AbstractEventLoop, still_max_s: float) -> None:
        """Call when the broker serves: from then on a loop that hangs for `still_max_s` ends the
        process."""
        ...

    def stopping(self) -> None:
        """Call before the broker stops, which may take long turns of the loop."""
        ...

    def tick(self) -> None:
        """Call every few seconds."""
        ...


class InterpreterTuning:
    """Thread switches and garbage collections that do not stall the loop, and a watchdog.

    Reference cycles are rare here (an exception with its frames). A small old generation is
    collected, a large one is put off, so that memory grows slowly meanwhile.
    """

    def __init__(self) -> None:
        self._put_off = 0
        self._watchdog: Watchdog | None = None

    def loaded(self) -> None:
        """Exclude all objects so far from collections: they live as long as the process.

        A full collection here would take some 50 ms and free next to nothing.
        """
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        sys.setswitchinterval(SWITCH_INTERVAL_S)

    def started(self, loop: asyncio.AbstractEventLoop, still_max_s: float) -> None:
        """Exclude the objects made since, and start the watchdog."""
        gc.freeze()
        self._watchdog = Watchdog(loop, still_max_s)
        self._watchdog.start()

    def stopping(self) -> None:
        """Stop the watchdog."""
        if self._watchdog is not None:
            self._watchdog.stop()

    def tick(self) -> None:
        """Collect the old generation, if it is small or was put off often enough."""
        self._put_off += 1
        is_small = len(gc.get_objects(generation=2)) <= OLD_OBJECTS_MAX
        if is_small or self._put_off > TICKS_UNTIL_FORCED:
            self._put_off = 0
            gc.collect()


class _DroppingHandler(logging.handlers.QueueHandler):
    """Never waits: when stderr is a full pipe, lines are dropped and counted."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            _DroppingHandler.dropped += 1


def start_logging(level: str) -> logging.handlers.QueueListener:
    """Log to stderr in a thread of its own; the caller stops the result at the end."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(LOG_QUEUE_MAX)
    handler = logging.StreamHandler(sys.stderr)
    form = "%(asctime)s.%(msecs)03d %(levelname).1s %(name)s: %(message)s"
    handler.setFormatter(logging.Formatter(form, "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [_DroppingHandler(lines)]
    root.setLevel(level)
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    listener = logging.handlers.QueueListener(lines, handler)
    listener.start()
    return listener
