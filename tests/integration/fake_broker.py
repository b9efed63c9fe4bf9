"""A stand-in for `python -m headwater_broker`: ready on its port, drains at EOF on stdin.

It tests the code that starts, supervises and ends broker processes, without a broker's start time.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    if "--help" in sys.argv:  # the check of an interpreter before an upgrade
        return 0
    config = Path(sys.argv[sys.argv.index("--config") + 1])
    rows = dict(line.split("=", 1) for line in config.read_text().splitlines())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    host, port = rows["listeners"].split("//")[1].rsplit(":", 1)
    folder = Path(rows["log.dirs"])
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "broken").exists():
        print("this disk is broken", file=sys.stderr)
        return 3
    with socket.create_server((host, int(port))):
        ready = {"ready": True, "broker_id": int(rows["broker.id"]), "port": int(port)}
        print(json.dumps({**ready, "pid": os.getpid()}), flush=True)
        sys.stdin.buffer.read()
    (folder / "drained").write_text("yes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
