"""A schema registry as a process of its own: `headwater registry serve`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration.conftest import next_base_port

READY_S = 60.0
STOP_S = 20.0


class RegistryProcess:
    """One instance, on a port of its own."""

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.port = port
        self.process = process

    @property
    def url(self) -> str:
        """The address that clients are given."""
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(bootstrap: str, log: Path, *options: str) -> Iterator[RegistryProcess]:
    """A registry that is ready; it ends with the block."""
    port = next_base_port(log.parent)
    headwater = str(Path(sys.executable).with_name("headwater"))
    command = [headwater, "registry", "serve", "--bootstrap-server", bootstrap]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            _wait_ready(process, log)
            yield RegistryProcess(port, process)
        finally:
            was_killed = process.poll() is not None
            process.terminate()
            code = process.wait(STOP_S)
            assert was_killed or code == 0, log.read_text()


def _wait_ready(process: subprocess.Popen[str], log: Path) -> None:
    assert process.stdout is not None
    started = time.monotonic()
    line = process.stdout.readline()
    assert line, f"the registry ended: {log.read_text()}"
    report: dict[str, Any] = json.loads(line)
    assert report["ready"] is True
    assert time.monotonic() - started < READY_S
