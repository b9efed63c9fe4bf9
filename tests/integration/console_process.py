"""The console as a process of its own: `headwater console`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.conftest import next_base_port
from integration.registry_process import http_process


@contextmanager
def serving_console(bootstrap: str, log: Path, *options: str) -> Iterator[str]:
    """The address of a console that is ready; it ends with the block."""
    port = next_base_port(log.parent)
    words = ["console", "--bootstrap-server", bootstrap, "--listen", f"127.0.0.1:{port}", *options]
    with http_process(words, log) as process:
        yield f"{process.url}/console"
