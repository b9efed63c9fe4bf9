"""The fault harness itself: a short soak is clean, and a planted bug is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration.conftest import next_base_port
from soak import network

pytestmark = [pytest.mark.integration, pytest.mark.long]

TESTS = Path(__file__).resolve().parents[1]
RUN_LIMIT_S = 240


def soak(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the harness as `make soak` does."""
    roots = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    where = ("--out", str(folder / "soak"), "--base-port", str(next_base_port(folder)))
    done = subprocess.run(
        [sys.executable, "-m", "soak.run", *where, *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots))},
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    print(done.stdout, done.stderr)
    return done


def test_a_short_soak_finds_nothing(tmp_path: Path) -> None:
    done = soak(tmp_path, "--minutes", "0.3", "--seed", "7")
    assert done.returncode == 0
    assert re.search(r"^anomalies: 0$", done.stdout, re.MULTILINE)
    faults = re.search(r"^faults injected: (\d+) \(seed 7\)", done.stdout, re.MULTILINE)
    assert faults is not None and int(faults[1]) >= 2
    acked = re.search(r"(\d+) sent, (\d+) acked", done.stdout)
    assert acked is not None and int(acked[2]) > 1000


@pytest.mark.skipif(
    bool(network.why_not()), reason="strand-leader cuts cables: needs network namespaces"
)
def test_a_broker_that_acknowledges_too_early_is_found(tmp_path: Path) -> None:
    """Brokers that do not wait for the high watermark, a leader that is cut off and then killed."""
    plant = ("--plant", "ack-before-high-watermark:*")
    done = soak(tmp_path, "--minutes", "0.1", "--seed", "1", "--only", "strand-leader", *plant)
    assert done.returncode == 1
    assert re.search(r"^LOST WRITE: sdk-\d:\d:\d+, acknowledged at", done.stdout, re.MULTILINE)
    assert re.search(r"^anomalies: \d+ \(.*lost write \d+", done.stdout, re.MULTILINE)
