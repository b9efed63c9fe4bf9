"""A child that behaves towards its supervisor as a broker does, and serves nothing.

It makes its data folder, registers in ZooKeeper, reports that it is ready, drains at EOF.
`exit-with=N` in its properties makes it fail before it is ready, `exit-with-ID=N` only broker ID.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kazoo.client import KazooClient


def main() -> int:
    path = Path(sys.argv[sys.argv.index("--config") + 1])
    rows = dict(line.split("=", 1) for line in path.read_text().splitlines())
    broker_id = rows["broker.id"]
    Path(rows["log.dirs"]).mkdir(exist_ok=True)
    for key in ("exit-with", f"exit-with-{broker_id}"):
        if key in rows:
            print("RuntimeError: the disk is on fire", file=sys.stderr)
            return int(rows[key])
    client = KazooClient(hosts=rows["zookeeper.connect"], timeout=30)
    client.start()
    client.ensure_path("/brokers/ids")
    client.create(f"/brokers/ids/{broker_id}", b"{}", ephemeral=True)
    session_id, password = client.client_id
    print("some other output", flush=True)
    ready = {"ready": True, "broker_id": int(broker_id), "session_id": session_id}
    print(json.dumps({**ready, "session_password": password.hex()}), flush=True)
    sys.stdin.read()
    print("drained", file=sys.stderr)
    client.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
