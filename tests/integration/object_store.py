"""An S3-compatible server (moto) in a process of its own, for tables in an object store."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BUCKET = "lake"
WAIT_S = 30.0


@dataclass
class ObjectStore:
    """The server. Its objects live as long as its process."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def options(self) -> dict[str, str]:
        """How deltalake reaches it; conditional puts are its default."""
        return {
            "aws_endpoint_url": f"http://127.0.0.1:{self.port}",
            "aws_access_key_id": "writer",
            "aws_secret_access_key": "not-a-secret",
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def pause(self, signum: int) -> None:
        """SIGSTOP: it answers no more; SIGCONT: it goes on."""
        self.process.send_signal(signum)


@contextmanager
def object_store(port: int) -> Iterator[ObjectStore]:
    """A server with one empty bucket."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _make_bucket(f"http://127.0.0.1:{port}/{BUCKET}")
        yield ObjectStore(port, process)
    finally:
        process.kill()
        process.wait(WAIT_S)


def _make_bucket(url: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
