"""Runs a command that ends with its parent: `python end_with_parent.py GRACE_S COMMAND...`.

It is for programs that do not watch their stdin, such as a JVM. End of file on stdin means that the
supervisor has died: the command then has GRACE_S seconds, in which brokers use ZooKeeper to drain,
and is terminated. If this process is killed, the command dies with it. It is run by its path with
`-I -S`, imports the standard library only, and starts in about 15 ms.
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
    """Runs in the child before exec. The main thread makes the child: its death ends the child."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Run the command; its exit code."""
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
    # Not sys.exit: the thread may be reading stdin at interpreter shutdown.
    os._exit(main())
