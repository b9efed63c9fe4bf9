"""Whether numba's kernels are compiled yet, and a process of its own that compiles them.

The first service of an installation would stand still for ten seconds and more until numba has
compiled the decoders of typed tables. A process beside it fills numba's cache on disk instead; rows
are read one at a time until then, to the same values. It needs neither numba nor pyarrow itself.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

logger = logging.getLogger(__name__)

COMPILER = "headwater_tier.compile_kernels"


class Kernels:
    """The state of this process. Any thread may ask."""

    def __init__(self, module: str = COMPILER) -> None:
        """`module`: what the process runs; tests give another one."""
        self.are_ready = True
        """False while they are being compiled aside. Without that they are compiled, or loaded
        from the cache, by whoever uses them first."""
        self._module = module
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_first = threading.Event()
        self._has_first.set()
        self._waiter: threading.Thread | None = None

    def compile_aside(self) -> None:
        """Start the process, once; `are_ready` when it has ended. If it fails, the kernels are
        compiled here all the same, by their first use."""
        with self._lock:
            if self._process is not None:
                return
            command = [sys.executable, "-P", "-m", self._module]
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
                )
            except OSError as error:
                logger.warning("the kernels are compiled in this process: %s", error)
                return
            self.are_ready = False
            self._has_first.clear()
            self._waiter = threading.Thread(
                target=self._wait, args=(self._process,), name="kernel-compiler", daemon=True
            )
            self._waiter.start()

    def wait_for_first(self) -> None:
        """Wait, where the process runs, until it has compiled what every topic needs: to do so here
        as well would only take the time from it."""
        self._has_first.wait()

    def join(self) -> None:
        """Wait until the process has ended, if it was started."""
        if self._waiter is not None:
            self._waiter.join()

    def close(self) -> None:
        """End the process, if it still runs."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
                self._process.wait()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as said:
            said.readline()  # or its end
            self._has_first.set()
            said.read()
        code = process.wait()
        if code > 0:
            logger.warning("compiling the kernels ended with %d: this process compiles them", code)
        self.are_ready = True


KERNELS = Kernels()
"""Of this process."""
