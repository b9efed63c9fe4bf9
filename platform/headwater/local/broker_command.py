"""The command of a broker process, and its change to another interpreter (a rolling upgrade)."""

from __future__ import annotations

import subprocess
import sys

from headwater.errors import UsageError

BROKER_COMMAND = (sys.executable, "-P", "-m", "headwater_broker")
CHECK_TIMEOUT_S = 30.0


def with_python(command: tuple[str, ...], python: str) -> tuple[str, ...]:
    """The broker's command with another interpreter, after `--help` has worked with it.

    A broker must not be stopped for code that does not start. Raises UsageError.
    """
    changed = (python, *command[1:])
    try:
        done = subprocess.run(
            [*changed, "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--python {python}: {error}: name a Python that has Headwater") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UsageError(
            f"--python {python} cannot run a broker: {said[-1]}: name a Python that has Headwater"
        )
    return changed
