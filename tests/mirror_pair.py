"""A mirror between two clusters for tests: in this process, or in one that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from headwater import Admin, Consumer
from headwater.cli.mirror import mirror
from headwater.client.admin.client import LATEST
from headwater.client.loop_thread import LoopThread
from headwater.client.values import ConsumerRecord, TopicPartition
from headwater.mirror.config import MirrorConfig, parse_config
from headwater.mirror.service import MirrorService

WAIT_S = 30.0
QUICK = {
    "commit.interval.ms": "20",
    "refresh.topics.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "source.fetch.max.wait.ms": "50",
}


def properties(source: str, target: str, **more: str) -> dict[str, str]:
    """A mirror's properties with short intervals; `_` in names stands for a dot."""
    extra = {key.replace("_", "."): value for key, value in more.items()}
    return {
        "source.bootstrap.servers": source, "target.bootstrap.servers": target, **QUICK, **extra,
    }  # fmt: skip


class RunningMirror:
    """A mirror on a loop of its own in this process."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.config: MirrorConfig = parse_config(given)
        self.error: BaseException | None = None
        self.service = MirrorService(self.config)
        self._thread = LoopThread("mirror")

    def __enter__(self) -> RunningMirror:
        self._run = asyncio.run_coroutine_threadsafe(self._work(), self._thread.loop)
        return self

    async def _work(self) -> None:
        try:
            await self.service.run()
        except BaseException as error:
            self.error = error
            raise

    def ended(self) -> BaseException | None:
        """Wait until it ends by itself; its error."""
        return self._run.exception(WAIT_S)

    def __exit__(self, *_: object) -> None:
        if not self._run.done():
            self._thread.loop.call_soon_threadsafe(self.service.stop)
            self._run.result(WAIT_S)
        self._thread.stop()


class MirrorProcess:
    """`headwater mirror run` in a process of its own."""

    def __init__(self, folder: Path, given: Mapping[str, str], name: str = "mirror") -> None:
        self.file = folder / f"{name}.properties"
        self.file.write_text("".join(f"{k}={v}\n" for k, v in given.items()))
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; one that runs stays."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "headwater", "mirror", "run", "--config"]
            with self.log.open("ab") as out:
                self._process = subprocess.Popen(
                    [*command, str(self.file)], stdout=out, stderr=out, env=dict(os.environ)
                )

    def ended(self) -> int | None:
        """The exit code, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(WAIT_S)

    def __enter__(self) -> MirrorProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)


def run_cli(folder: Path, given: Mapping[str, str], verb: str, *arguments: str) -> tuple[int, str]:
    """`headwater mirror VERB --config FILE ...` in this process: (exit code, output). Raises what
    it raises."""
    path = folder / "cli.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in given.items()))
    result = CliRunner().invoke(
        mirror, [verb, "--config", str(path), *arguments], standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout


def until(holds: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Wait until it holds; what it gave. Fails with `what`."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)
    return found


def read_all(
    servers: str, topic: str, login: Mapping[str, Any] | None = None, **options: Any
) -> dict[int, list[ConsumerRecord]]:
    """The visible records of a topic up to its end now, by partition."""
    options |= login or {}
    with Admin(servers, **(login or {})) as admin:
        count = len(admin.describe_topics([topic])[topic].partitions)
        rows = [TopicPartition(topic, p) for p in range(count)]
        ends = admin.list_offsets(dict.fromkeys(rows, LATEST), isolation_level="read_committed")
    found: dict[int, list[ConsumerRecord]] = {p: [] for p in range(count)}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign(rows)
        while any(consumer.position(tp) < ends[tp].offset for tp in rows):
            for batch in consumer.poll(timeout_ms=200).values():
                for record in batch:
                    found[record.partition].append(record)
    return found


def payloads(found: Mapping[int, list[ConsumerRecord]]) -> dict[int, list[tuple[Any, ...]]]:
    """What a mirrored record must have in common with its original."""
    return {
        p: [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in rows]
        for p, rows in found.items()
    }


def has_topic(servers: str, topic: str) -> bool:
    """True once a cluster has the topic."""
    with Admin(servers) as admin:
        return topic in admin.list_topics()


def mirrored(source: str, target: str, topic: str) -> bool:
    """True once the target has as many visible records in each partition."""
    if not has_topic(target, topic):
        return False
    ours, theirs = read_all(target, topic), read_all(source, topic)
    return {p: len(rows) for p, rows in ours.items()} == {p: len(r) for p, r in theirs.items()}
