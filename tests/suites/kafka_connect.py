"""Kafka Connect as it is, standalone: a worker and its connectors in one JVM."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from suites import java_programs
from suites.killing import KillableProgram

HOST = "127.0.0.1"
STOPS_S = 60.0
MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"


class Connect:
    """A worker with connectors; it may be started again after it ended."""

    def __init__(
        self,
        folder: Path,
        jars: Path,
        servers: str,
        rest_port: int,
        connectors: Sequence[Mapping[str, str]],
        settings: Mapping[str, str],
    ) -> None:
        """`settings`: more rows of the worker's properties, its converters among them."""
        folder.mkdir(parents=True, exist_ok=True)
        worker = {
            "bootstrap.servers": servers,
            "listeners": f"http://{HOST}:{rest_port}",
            "plugin.path": str(jars.parent),
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            **settings,
        }
        files = [_written(folder / "worker.properties", worker)]
        files += [_written(folder / f"{rows['name']}.properties", rows) for rows in connectors]
        command = java_programs.java(f"{jars}/*", MAIN, *files)
        self._program = KillableProgram(command, folder / "connect.log")

    def __enter__(self) -> Connect:
        self._program.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()

    def stop(self) -> None:
        """End it as an operator does: tasks stop, offsets are flushed."""
        self._program.signal(signal.SIGTERM)
        self._program.wait(STOPS_S)

    def told(self) -> str:
        """The end of its log."""
        return self._program.last_words()


def read_properties(path: Path) -> dict[str, str]:
    """The rows of a file of properties."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _written(path: Path, rows: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
    return str(path)
