"""The console as a process of its own: `headwater console`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.conftest import next_base_port

STOP_S = 20.0


@contextmanager
def serving_console(bootstrap: str, log: Path, *options: str) -> Iterator[str]:
    """The address of a console that is ready; it ends with the block."""
    port = next_base_port(log.parent)
    command = [str(Path(sys.executable).with_name("headwater")), "console"]
    command += ["--bootstrap-server", bootstrap, "--listen", f"127.0.0.1:{port}", *options]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield f"{json.loads(line)['url']}/console"
        finally:
            process.terminate()
            assert process.wait(STOP_S) == 0, log.read_text()
