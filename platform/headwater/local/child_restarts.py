"""A supervised child process: a thread starts it, waits for its end, restarts it with back-off."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headwater.clock import Clock
from headwater.local.child import Child, ChildFailedError, ChildSpec, last_error_line

logger = logging.getLogger(__name__)

BACK_OFF_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
"""The first restart is immediate: a killed broker must be back within a second."""
STEADY_S = 30.0
"""After a run of this length the back-off starts from the beginning."""
READY_TIMEOUT_S = 60.0
DRAIN_GRACE_S = 10.0
KILL_WAIT_S = 5.0
SPAWN_FAILED = 127

OnGone = Callable[[int], None]
"""Called with the exit code after a run has ended and before the next one starts."""


class SupervisedChild:
    """A child process that is restarted when it ends. Its thread starts every run and outlives it
    (see `Child`)."""

    def __init__(
        self,
        spec: ChildSpec,
        clock: Clock,
        *,
        on_ready: Callable[[dict[str, Any]], None] = lambda _readiness: None,
        on_gone: OnGone = lambda _code: None,
    ) -> None:
        self.spec = spec
        self.restarts = 0
        self._clock = clock
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._changed = threading.Condition()
        self._child: Child | None = None
        self._first_failure: str | None = None
        self._stopping = False
        self._held = False
        self._log_start = 0
        self._thread = threading.Thread(target=self._supervise, name=spec.name, daemon=True)

    @property
    def pid(self) -> int | None:
        """The process id of the current run; None between runs."""
        child = self._child
        return child.pid if child is not None else None

    @property
    def readiness(self) -> dict[str, Any] | None:
        """The readiness report of the current run; None until it is ready, and between runs."""
        child = self._child
        return child.readiness if child is not None else None

    @property
    def is_held(self) -> bool:
        """True while the child is not restarted when it ends."""
        return self._held

    def set_command(self, command: tuple[str, ...]) -> None:
        """Run this command from the next run on."""
        self.spec = replace(self.spec, command=command)

    def start(self) -> None:
        """Start the first run."""
        self._thread.start()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> dict[str, Any]:
        """The readiness report. Raises ChildFailedError if the first run fails, or on timeout."""
        deadline = self._clock.monotonic() + timeout_s
        with self._changed:
            while (readiness := self.readiness) is None:
                if self._first_failure is not None:
                    raise ChildFailedError(self._first_failure)
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise ChildFailedError(
                        f"{self.spec.name} is not ready after {timeout_s:.0f} s; its last log line:"
                        f" {self._last_words()} (log: {self.spec.log_path})"
                    )
                self._changed.wait(left)
            return readiness

    def wait_down(self, pid: int, timeout_s: float = KILL_WAIT_S) -> bool:
        """True once the run with this `pid` has ended and `on_gone` has returned."""
        with self._changed:
            return self._changed.wait_for(lambda: self.pid != pid, timeout_s)

    def send(self, signum: signal.Signals) -> None:
        """Send a signal to the current run."""
        child = self._child
        if child is not None:
            child.send(signum)

    def hold(self) -> None:
        """Do not restart the child when it ends, until `release`."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        """Restart the child again when it ends; at once if it is down."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def drain(self) -> None:
        """Hold the child and ask the current run to drain and exit. Returns at once."""
        self.hold()
        child = self._child
        if child is not None:
            child.ask_to_stop()

    def ask_to_stop(self) -> None:
        """End supervision: ask the current run to drain and exit. Returns at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            child = self._child
        if child is not None:
            child.ask_to_stop()

    def finish_stop(self, grace_s: float = DRAIN_GRACE_S) -> None:
        """Wait for the end after `ask_to_stop`; send SIGKILL after `grace_s`."""
        if self._thread.ident is None:
            return
        self._thread.join(grace_s)
        if self._thread.is_alive():
            child = self._child
            if child is not None:
                logger.warning("%s did not drain in %.0f s: killed", self.spec.name, grace_s)
                child.kill()
            self._thread.join(KILL_WAIT_S)

    def _supervise(self) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            readiness, code = self._run_once()
            if self._clock.monotonic() - started >= STEADY_S:
                failures = 0
            if readiness is None:  # it never became ready: no immediate restart
                failures += 1
            delay = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
            failures += 1
            with self._changed:
                if not self._stopping:
                    self._log_end(code, delay)
                    self._changed.wait_for(lambda: self._stopping, delay)
                self._changed.wait_for(lambda: self._stopping or not self._held)
                if self._stopping:
                    return
                self.restarts += 1

    def _run_once(self) -> tuple[dict[str, Any] | None, int]:
        """Start the process and wait for its end: its readiness report and exit code."""
        try:
            child = Child(self.spec, self._ready)
        except OSError as error:
            self.spec.log_path.write_text(f"cannot run {self.spec.command[0]}: {error}\n")
            self._log_start = 0
            self._ended(None, SPAWN_FAILED)
            return None, SPAWN_FAILED
        with self._changed:
            self._child = child
            self._log_start = child.log_start
            stopping = self._stopping
            self._changed.notify_all()
        if stopping:  # `ask_to_stop` came while the process was being started
            child.ask_to_stop()
        code = child.wait()
        try:
            self._on_gone(code)
        finally:
            self._ended(child.readiness, code)
        return child.readiness, code

    def _ended(self, readiness: dict[str, Any] | None, code: int) -> None:
        with self._changed:
            self._child = None
            if readiness is None and self.restarts == 0:
                self._first_failure = self._end_of_run(code)
            self._changed.notify_all()

    def _ready(self, readiness: dict[str, Any]) -> None:
        self._on_ready(readiness)
        with self._changed:
            self._changed.notify_all()

    def _log_end(self, code: int, delay: float) -> None:
        if self._held and code == 0:
            logger.info("%s stopped", self.spec.name)
        else:
            next_step = "not restarted" if self._held else f"restart in {delay:.1f} s"
            logger.warning("%s; %s", self._end_of_run(code), next_step)

    def _end_of_run(self, code: int) -> str:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        return f"{self.spec.name} {how}: {self._last_words()} (log: {self.spec.log_path})"

    def _last_words(self) -> str:
        return last_error_line(self.spec.log_path, self._log_start)
