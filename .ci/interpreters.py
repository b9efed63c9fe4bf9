"""Which Python .venv is made of: a broker is as fast as the interpreter that runs it.

The Pythons of distributions are built with profile-guided optimization; one that pyenv compiled is
not, unless it was told so. A build's own variables do not always say so (Debian's do not), so it is
measured.
"""

import os
import subprocess
import sys

PROBE = """
import ensurepip, ssl, sqlite3, time, venv

class Count:
    def __init__(self):
        self.sum = 0
    def add(self, number):
        self.sum += number
        return self.sum

def run():
    count, rows, began = Count(), {}, time.perf_counter()
    for number in range(60000):
        count.add(number & 7)
        rows[number & 255] = (number, count.sum)
        bytes(rows[number & 255][0].to_bytes(4, "big"))
    return time.perf_counter() - began

print(min(run() for _ in range(3)))
"""
ROUNDS = 5
CLEARLY = 1.1
"""So many times as fast another Python must be to be taken: what is near is left alone."""
TIMEOUT_S = 60


def of_the_system():
    """The Pythons of this version that a distribution or its administrator has installed."""
    version = "python%d.%d" % sys.version_info[:2]
    return [os.path.join(folder, version) for folder in ("/usr/local/bin", "/usr/bin")]


def seconds(python):
    """How long a loop takes it; None when it cannot make a venv, or does not run."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", PROBE],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S,
        )
        return float(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def fastest(own, others, measure=seconds):
    """(`own` or one of `others` that is clearly faster, how many times as fast as `own`).

    They are measured by turns, so that a busy moment of the machine counts for all.
    """
    seen = {os.path.realpath(own)}
    rivals = []
    for python in others:
        if os.path.realpath(python) not in seen and os.access(python, os.X_OK):
            seen.add(os.path.realpath(python))
            rivals.append(python)
    if not rivals:
        return own, 1.0
    took = {python: [] for python in [own] + rivals}
    for _ in range(ROUNDS):
        for python, found in took.items():
            found.append(measure(python))
    if None in took[own]:  # then it is for the steps to say what it lacks
        return own, 1.0
    best = {python: min(found) for python, found in took.items() if None not in found}
    chosen = min(best, key=best.get)
    ratio = best[own] / best[chosen]
    return (chosen, ratio) if ratio >= CLEARLY else (own, 1.0)
