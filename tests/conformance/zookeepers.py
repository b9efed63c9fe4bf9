"""A real ZooKeeper of a test module's own."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.local.java import find_java
from headwater.local.zookeeper import is_serving, zookeeper_spec


@contextmanager
def running_zookeeper(folder: Path) -> Iterator[str]:
    """`host:port` of a server that answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spec = zookeeper_spec(folder, port, folder / "log")
    command = spec.command[spec.command.index(find_java()) :]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as java:
        try:
            asyncio.run(_serving(port))
            yield f"127.0.0.1:{port}"
        finally:
            java.kill()
            java.wait()


async def _serving(port: int) -> None:
    for _ in range(600):
        if is_serving("127.0.0.1", port):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("ZooKeeper did not start")
