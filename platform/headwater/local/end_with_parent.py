"""Runs a command that must not outlive us: `python guard.py GRACE_S COMMAND...`.

For programs that do not watch their stdin themselves (a JVM). While our stdin stays open the
command runs; at EOF, which is how a supervisor's death looks, it has GRACE_S seconds more (brokers
drain against ZooKeeper meanwhile) and is then ended. Killed itself, it takes the command along.
Run by path with `-I -S`: imports the standard library only, starts in some 15 ms.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading

PR_SET_PDEATHSIG = 1
TERM_WAIT_S = 5.0


def _die_with_parent() -> None:
    """In the child, before exec. The guard's main thread spawns, so its death is our death."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Run the command; its exit code is ours."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    before = _die_with_parent if sys.platform == "linux" else None
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=before)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: child.terminate())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def watch_stdin() -> None:
        while True:
            select.select([0], [], [])
            if os.read(0, 4096) == b"":
                break
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.terminate()
        try:
            child.wait(TERM_WAIT_S)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=watch_stdin, daemon=True).start()
    return abs(child.wait())


if __name__ == "__main__":
    # Not sys.exit: the daemon thread may hold stdin at interpreter shutdown.
    os._exit(main())
