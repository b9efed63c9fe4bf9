"""Programs that are killed and started again, and the input that flows meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import confluent_kafka

END_S = 30.0
POLL_S = 0.1
SHOWN_CHARACTERS = 3_000


class KillableProgram:
    """A program with all processes that it starts: one process group, which dies as one."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """`log` gets the output of every run."""
        self._command, self.log = command, log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KillableProgram:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it; the last run must have ended."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal to all its processes."""
        assert self._process is not None, "not started"
        try:
            os.killpg(self._process.pid, signum)
        except ProcessLookupError:
            return

    def kill(self) -> None:
        """SIGKILL to all its processes; returns when they are gone."""
        if self._process is None:
            return
        self.signal(signal.SIGKILL)
        self._process.wait(END_S)

    @property
    def pid(self) -> int:
        """Of the last run."""
        assert self._process is not None, "not started"
        return self._process.pid

    def exit_code(self) -> int | None:
        """Of the last run; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def wait(self, timeout_s: float) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        assert self._process is not None, "not started"
        return self._process.wait(timeout_s)

    def restart_if_ended(self) -> bool:
        """Start it again if it has ended by itself, as a supervisor would; whether it had."""
        if self.exit_code() is None:
            return False
        self.kill()
        self.start()
        return True

    def log_text(self) -> str:
        """The output of all runs."""
        return self.log.read_text(errors="replace")

    def last_words(self) -> str:
        """The end of the output."""
        return self.log_text()[-SHOWN_CHARACTERS:]


class Feeder:
    """Writes lines into a topic until it is stopped, each acknowledged and in order.

    `line(number)` is (partition, value). The producer is idempotent: what it wrote is in the log
    once, whatever happens to the brokers.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        line: Callable[[int], tuple[int, str]],
        lines_per_s: float,
        lines: int | None = None,
    ) -> None:
        """`lines`: how many; None for as many as it can until it is stopped."""
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
        self._producer = confluent_kafka.Producer(settings)
        self._topic, self._line, self._pause_s = topic, line, 1 / lines_per_s
        self._lines = lines
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self.count = 0
        self.errors: list[str] = []

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more, and join."""
        self._stopping.set()
        self.join()

    def join(self) -> None:
        """Return when all lines are acknowledged. Fails when one is not."""
        self._thread.join()
        left = self._producer.flush(120)
        assert left == 0 and self.errors == [], (left, self.errors[:3])

    def _feed(self) -> None:
        while self.count != self._lines and not self._stopping.wait(self._pause_s):
            partition, value = self._line(self.count)
            self._producer.produce(
                self._topic, value.encode(), partition=partition, on_delivery=self._delivered
            )
            self.count += 1
            self._producer.poll(0)

    def _delivered(self, error: confluent_kafka.KafkaError | None, _message: object) -> None:
        if error is not None:
            self.errors.append(str(error))


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Poll until the condition holds. Raises AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(POLL_S)
