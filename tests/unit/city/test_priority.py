"""Spark's batch work is lowered, whatever ends while it is looked for."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from city.priority import BATCH_NICENESS, is_daemon, lower

WAITS = "import sys; print(flush=True); sys.stdin.read()"


def test_a_process_that_runs_is_lowered_with_its_threads() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        lower(process)
        found = {os.getpriority(os.PRIO_PROCESS, thread.id) for thread in process.threads()}
        assert min(found) >= BATCH_NICENESS
        assert not is_daemon(process)
        child.communicate(b"")


def test_a_daemon_is_known_by_its_module() -> None:
    words = [sys.executable, "-c", WAITS, "-m", "pyspark.daemon"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it runs: before that its command line may be its parent's
        assert is_daemon(psutil.Process(child.pid))
        child.communicate(b"")


def test_a_zombie_and_a_process_that_is_gone_are_passed_over() -> None:
    read, write = os.pipe()
    with subprocess.Popen([sys.executable, "-c", ""], pass_fds=[write]) as child:
        os.close(write)
        os.read(read, 1)  # end of file: it has ended, and nobody has asked for its exit code
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        zombie = psutil.Process(child.pid)
        assert zombie.status() == psutil.STATUS_ZOMBIE
        assert not is_daemon(zombie)
        lower(zombie)
    os.close(read)
    assert not is_daemon(zombie)
    lower(zombie)
