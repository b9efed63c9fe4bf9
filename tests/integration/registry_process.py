"""A schema registry as a process of its own: `headwater registry serve`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration.conftest import next_base_port

READY_S = 60.0
STOP_S = 20.0


class RegistryProcess:
    """One instance (also of the gateway), on a port of its own."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.process = process

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(bootstrap: str, log: Path, *options: str) -> Iterator[RegistryProcess]:
    """A registry that is ready; it ends with the block."""
    port = next_base_port(log.parent)
    words = ("registry", "serve", "--bootstrap-server", bootstrap, "--port", str(port), *options)
    with http_process(words, log) as process:
        yield process


@contextmanager
def http_process(words: Sequence[str], log: Path) -> Iterator[RegistryProcess]:
    """`headwater WORDS`, once it tells that it is ready; it ends with the block."""
    headwater = str(Path(sys.executable).with_name("headwater"))
    with log.open("w") as errors:
        process = subprocess.Popen(
            [headwater, *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield RegistryProcess(_wait_ready(process, log), process)
        finally:
            was_killed = process.poll() is not None
            process.terminate()
            code = process.wait(STOP_S)
            assert was_killed or code == 0, log.read_text()


def _wait_ready(process: subprocess.Popen[str], log: Path) -> str:
    """The URL, once it listens there."""
    assert process.stdout is not None
    started = time.monotonic()
    line = process.stdout.readline()
    assert line, f"it ended: {log.read_text()}"
    report: dict[str, Any] = json.loads(line)
    assert report["ready"] is True
    assert time.monotonic() - started < READY_S
    return str(report["url"])
