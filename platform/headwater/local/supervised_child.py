"""Keeps one child running: starts it, waits for its death in a thread, restarts with back-off."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

from headwater.clock import Clock
from headwater.local.child import Child, ChildFailedError, ChildSpec, last_error_line

logger = logging.getLogger(__name__)

# The first restart is immediate: a killed broker shall be back in a second.
BACK_OFF_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 30.0
"""A child that lived this long starts the back-off anew."""
READY_TIMEOUT_S = 60.0
DRAIN_GRACE_S = 10.0
KILL_WAIT_S = 5.0
SPAWN_FAILED = 127

Gone = Callable[[int], None]
"""Called with the exit code once a run is over and before any restart."""


class SupervisedChild:
    """One supervised slot. Its thread spawns every run and outlives it (see `Child`)."""

    def __init__(
        self,
        spec: ChildSpec,
        clock: Clock,
        *,
        on_ready: Callable[[dict[str, Any]], None] = lambda _told: None,
        on_gone: Gone = lambda _code: None,
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
        self._thread = threading.Thread(target=self._keep, name=spec.name, daemon=True)

    @property
    def pid(self) -> int | None:
        """The process id of the current run; None between runs."""
        child = self._child
        return child.pid if child is not None else None

    @property
    def readiness(self) -> dict[str, Any] | None:
        """What the current run told when it became ready; None before that and between runs."""
        child = self._child
        return child.readiness if child is not None else None

    def start(self) -> None:
        """Spawn it and begin to watch."""
        self._thread.start()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> dict[str, Any]:
        """What it told. Raises ChildFailedError when its first run failed or time is up."""
        deadline = self._clock.monotonic() + timeout_s
        with self._changed:
            while (told := self.readiness) is None:
                if self._first_failure is not None:
                    raise ChildFailedError(self._first_failure)
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise ChildFailedError(
                        f"{self.spec.name} is not ready after {timeout_s:.0f} s; its last words: "
                        f"{last_error_line(self.spec.log_path)} (log: {self.spec.log_path})"
                    )
                self._changed.wait(left)
            return told

    def wait_down(self, pid: int, timeout_s: float = KILL_WAIT_S) -> bool:
        """True once the run with this `pid` is over and what it left behind is closed."""
        with self._changed:
            return self._changed.wait_for(lambda: self.pid != pid, timeout_s)

    def send(self, signum: signal.Signals) -> None:
        """Signal the current run."""
        child = self._child
        if child is not None:
            child.send(signum)

    def hold(self) -> None:
        """Do not restart it when it ends, until `release`."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        """Restart it, now if it is down."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def drain(self) -> None:
        """Let the current run end by itself and hold it. Returns at once."""
        self.hold()
        child = self._child
        if child is not None:
            child.ask_to_stop()

    def ask_to_stop(self) -> None:
        """Begin the end: no restart, and drain. Returns at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            child = self._child
        if child is not None:
            child.ask_to_stop()

    def finish_stop(self, grace_s: float = DRAIN_GRACE_S) -> None:
        """Wait for the end; SIGKILL after `grace_s`."""
        if self._thread.ident is None:
            return
        self._thread.join(grace_s)
        if self._thread.is_alive():
            child = self._child
            if child is not None:
                logger.warning("%s did not drain in %.0f s: killed", self.spec.name, grace_s)
                child.kill()
            self._thread.join(KILL_WAIT_S)

    def _keep(self) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            told, code = self._run_once()
            if self._clock.monotonic() - started >= STEADY_S:
                failures = 0
            if told is None:  # it never came up: something is wrong, so no immediate restart
                failures += 1
            delay = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
            failures += 1
            with self._changed:
                if not self._stopping:
                    next_step = "held" if self._held else f"restart in {delay:.1f} s"
                    logger.warning("%s; %s", self._obituary(code), next_step)
                    self._changed.wait_for(lambda: self._stopping, delay)
                self._changed.wait_for(lambda: self._stopping or not self._held)
                if self._stopping:
                    return
                self.restarts += 1

    def _run_once(self) -> tuple[dict[str, Any] | None, int]:
        """One life: spawn, wait, tidy. Returns what it told and its exit code."""
        try:
            child = Child(self.spec, self._ready)
        except OSError as error:
            self.spec.log_path.write_text(f"cannot run {self.spec.command[0]}: {error}\n")
            self._ended(None, SPAWN_FAILED)
            return None, SPAWN_FAILED
        with self._changed:
            self._child = child
            stopping = self._stopping
            self._changed.notify_all()
        if stopping:  # asked to stop while it was being spawned
            child.ask_to_stop()
        code = child.wait()
        try:
            self._on_gone(code)
        finally:
            self._ended(child.readiness, code)
        return child.readiness, code

    def _ended(self, told: dict[str, Any] | None, code: int) -> None:
        with self._changed:
            self._child = None
            if told is None and self.restarts == 0:
                self._first_failure = self._obituary(code)
            self._changed.notify_all()

    def _ready(self, told: dict[str, Any]) -> None:
        self._on_ready(told)
        with self._changed:
            self._changed.notify_all()

    def _obituary(self, code: int) -> str:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        last = last_error_line(self.spec.log_path)
        return f"{self.spec.name} {how}: {last} (log: {self.spec.log_path})"
