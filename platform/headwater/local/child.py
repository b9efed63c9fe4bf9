"""One run of a child process: it leads a session of its own, and its output goes to a log file.

A broker reports that it is ready by a JSON line on stdout (`{"ready": true, ...}`); a later JSON
line with a `session_id` replaces its ZooKeeper session. All other output goes to the log. The
child's stdin is a pipe: end of file, also by this process's death, means "drain, then exit".
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError

PROBE_EVERY_S = 0.02
LOG_BYTES_MAX = 10 * 1024 * 1024
LOGS_KEPT = 3
TAIL_BYTES = 16_384
ERROR_LINE_CHARS_MAX = 1_000


class ChildFailedError(HeadwaterError):
    """A child process did not become ready. Names the child, its end and its last log line."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child process to run. With a `probe` it is ready when that returns True; otherwise when it
    prints its JSON line."""

    name: str
    command: tuple[str, ...]
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    probe: Callable[[], bool] | None = None
    drains_at_eof: bool = True
    umask: int | None = None
    """None: that of this process."""


class Child:
    """A running child process. Only the thread that made it may call `wait`.

    That thread must live as long as the child: brokers set PDEATHSIG on themselves, and the kernel
    sends that signal at the death of the parent *thread*.
    """

    def __init__(self, spec: ChildSpec, on_ready: Callable[[dict[str, Any]], None]) -> None:
        self.spec = spec
        self.readiness: dict[str, Any] | None = None
        self._on_ready = on_ready
        self._lock = threading.Lock()
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(spec.log_path, "ab") as log:
            self.log_start = log.tell()
            """Where this run's part of the log begins."""
            self._process = subprocess.Popen(
                spec.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if spec.probe is None else log,
                stderr=log,
                env={**os.environ, **spec.environment},
                start_new_session=True,
                umask=-1 if spec.umask is None else spec.umask,
            )
        watch = self._read_stdout if spec.probe is None else self._poll_probe
        self._watcher = threading.Thread(target=watch, name=f"{spec.name}-ready", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its session and process group."""
        return self._process.pid

    def wait(self) -> int:
        """Block until it has ended; its exit code, negative for a signal.

        A blocking waitpid: the end is known at once, not at the next poll.
        """
        code = self._process.wait()
        self._kill_group()  # processes that it has started do not outlive it
        self._watcher.join(timeout=1.0)
        return code

    def send(self, signum: signal.Signals) -> None:
        """Send a signal unless the process has ended."""
        with self._lock:
            if self._process.returncode is None:
                # It may have ended, and been reaped, a moment ago.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process.pid, signum)

    def ask_to_stop(self) -> None:
        """Close its stdin; send SIGTERM to a program that does not watch its stdin."""
        if self.spec.drains_at_eof:
            self._close_stdin()
        else:
            self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process and to all processes that it has started."""
        self._close_stdin()
        self._kill_group()

    def _close_stdin(self) -> None:
        with self._lock:
            if self._process.stdin is not None and not self._process.stdin.closed:
                self._process.stdin.close()

    def _kill_group(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # the group is empty

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = _readiness(line)
            if report is None:
                with open(self.spec.log_path, "ab") as log:
                    log.write(line)
                continue
            self.readiness = {**(self.readiness or {}), **report}
            self._on_ready(self.readiness)
        self._process.stdout.close()

    def _poll_probe(self) -> None:
        assert self.spec.probe is not None
        pause = threading.Event()
        while self._process.returncode is None:
            if self.spec.probe():
                self.readiness = {"ready": True}
                self._on_ready(self.readiness)
                return
            pause.wait(PROBE_EVERY_S)


def _readiness(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line that reports readiness or a new session; None for other output."""
    if not line.startswith(b"{"):
        return None
    try:
        report = json.loads(line)
    except ValueError:
        return None
    is_ours = isinstance(report, dict) and ("ready" in report or "session_id" in report)
    return report if is_ours else None


def last_error_line(log_path: Path, start: int = 0) -> str:
    """The last line of a log from its byte `start` on; after a traceback, of Python or Java, the
    exception."""
    try:
        with open(log_path, "rb") as log:
            end = log.seek(0, os.SEEK_END)
            begin = start if start <= end else 0  # it was rotated since
            log.seek(max(begin, end - TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
    except OSError as error:
        return f"no log: {error}"
    frames = ("at ", "... ")  # of Java: they follow their exception
    words = (line.strip() for line in lines)
    written = [line for line in words if line and not line.startswith(frames)]
    return written[-1][:ERROR_LINE_CHARS_MAX] if written else "it wrote nothing"


def log_tail(log_path: Path, size: int) -> str:
    """The last `size` bytes of a log, from the start of a line on. Raises HeadwaterError."""
    try:
        with open(log_path, "rb") as log:
            start = max(0, log.seek(0, os.SEEK_END) - size)
            log.seek(start)
            text = log.read(size)
    except OSError as error:
        raise HeadwaterError(f"{log_path}: {error.strerror}") from error
    if start > 0:
        text = text.partition(b"\n")[2]
    return text.decode(errors="replace")


def rotate_if_large(path: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Rotate the log `path` if it is larger than `bytes_max`; LOGS_KEPT older parts are kept.

    The newest part is `path.1`. The child holds the file open in append mode, so its content is
    copied and the file truncated; a crash in between loses no line that is on disk.
    """
    try:
        if path.stat().st_size <= bytes_max:
            return False
    except FileNotFoundError:
        return False
    for number in range(LOGS_KEPT - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            os.replace(older, path.with_name(f"{path.name}.{number + 1}"))
    newest = path.with_name(f"{path.name}.1")
    with open(path, "rb") as source, open(newest, "wb") as target:
        while part := source.read(1024 * 1024):
            target.write(part)
    os.truncate(path, 0)
    return True
