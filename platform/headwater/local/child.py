"""One run of one child process: own session, readiness by its own word, output in a log file.

A broker tells readiness by a JSON line on stdout (`{"ready": true, ...}`); later JSON lines with a
`session_id` replace the ZooKeeper session it holds. All other output goes to the log. Its stdin is
a pipe: EOF there, even by our own death, means "drain, then exit".
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
ERROR_LINE_CHARS_MAX = 400


class ChildFailedError(HeadwaterError):
    """A child process did not come up. Says which, how, and its last words."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run. With a `probe` readiness is what it says, else the JSON line on stdout."""

    name: str
    command: tuple[str, ...]
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    probe: Callable[[], bool] | None = None
    drains_at_eof: bool = True


class Child:
    """A started child. `wait` belongs to the thread that made it, all else to anyone.

    That thread must live as long as the child: PDEATHSIG, which brokers set on themselves, fires
    at the death of the parent *thread*.
    """

    def __init__(self, spec: ChildSpec, on_ready: Callable[[dict[str, Any]], None]) -> None:
        self.spec = spec
        self.readiness: dict[str, Any] | None = None
        self._on_ready = on_ready
        self._lock = threading.Lock()
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(spec.log_path, "ab") as log:
            self._process = subprocess.Popen(
                spec.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if spec.probe is None else log,
                stderr=log,
                env={**os.environ, **spec.environment},
                start_new_session=True,
            )
        watch = self._read_stdout if spec.probe is None else self._poll_probe
        self._watcher = threading.Thread(target=watch, name=f"{spec.name}-ready", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Its process id, which is also its session's and its group's."""
        return self._process.pid

    def wait(self) -> int:
        """Block until it is gone; its exit code, negative for a signal.

        A blocking waitpid: a death is known at once, not at the next poll.
        """
        code = self._process.wait()
        self._kill_group()  # its workers do not outlive it
        self._watcher.join(timeout=1.0)
        return code

    def send(self, signum: signal.Signals) -> None:
        """Signal the process, if it is still there."""
        with self._lock:
            if self._process.returncode is None:
                # It may have ended by itself, and been reaped, a moment ago.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process.pid, signum)

    def ask_to_stop(self) -> None:
        """EOF on its stdin, or SIGTERM for a program that does not watch it."""
        if self.spec.drains_at_eof:
            self._close_stdin()
        else:
            self.send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL it and everything it started."""
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
            return  # nobody is left in the group

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = _readiness(line)
            if told is None:
                with open(self.spec.log_path, "ab") as log:
                    log.write(line)
                continue
            self.readiness = {**(self.readiness or {}), **told}
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
    if not line.startswith(b"{"):
        return None
    try:
        told = json.loads(line)
    except ValueError:
        return None
    is_ours = isinstance(told, dict) and ("ready" in told or "session_id" in told)
    return told if is_ours else None


def last_error_line(log_path: Path) -> str:
    """The last line of a log: of a traceback, what was raised."""
    try:
        with open(log_path, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
    except OSError as error:
        return f"no log: {error}"
    written = [line.strip() for line in lines if line.strip()]
    return written[-1][:ERROR_LINE_CHARS_MAX] if written else "it wrote nothing"


def rotate_if_large(path: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Keep `path` and LOGS_KEPT older parts (`.1` is the newest) of about `bytes_max` each.

    The writer holds the file open in append mode, so the content is copied away and the file cut;
    the writer's death or ours in between loses no line that is on disk.
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
