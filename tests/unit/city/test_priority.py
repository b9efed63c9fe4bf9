"""Batch work's priority: every thread of a process, and what it starts later."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from city.priority import BATCH_NICENESS, lower

PROGRAM = """
import os, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
def tell():
    print(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

later = threading.Thread(target=tell)
later.start()
later.join()
"""


def test_every_thread_of_a_process_and_those_that_it_starts_later() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    wanted = max(BATCH_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
    process = psutil.Process(child.pid)
    lower(process)
    found = [os.getpriority(os.PRIO_PROCESS, thread.id) for thread in process.threads()]
    told, _ = child.communicate("go on\n")
    assert found == [wanted] * 2
    assert told == f"{wanted}\n"
