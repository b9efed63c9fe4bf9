"""A service of the city in a process of its own: `python -m city.live` and such.

A service prints a JSON line once it is ready, ends when its stdin closes, and may print a JSON line
with its figures then.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError

READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 60.0
SOURCES = Path(__file__).resolve().parents[1]


class Child:
    """The process; `log` gets its stderr."""

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self._module = module
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        paths = [str(SOURCES), os.environ.get("PYTHONPATH", "")]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self._log = log
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put("")

    def _line(self, timeout_s: float, what: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty as e:
            raise HeadwaterError(f"{self._module}: {what} within {timeout_s:.0f} s") from e
        if not line:
            raise HeadwaterError(f"{self._module} has ended: see {self._log}")
        told: dict[str, Any] = json.loads(line)
        return told

    def wait_ready(self) -> dict[str, Any]:
        """Wait until it is ready; what it says. Raises HeadwaterError."""
        return self._line(READY_TIMEOUT_S, "not ready")

    def stop(self, *, tells: bool = False) -> dict[str, Any]:
        """Let it finish; with `tells`, the figures it prints. Raises HeadwaterError."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        told = self._line(END_TIMEOUT_S, "no figures") if tells else {}
        self._process.wait(END_TIMEOUT_S)
        return told

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self._process.kill()
        self._process.wait()
