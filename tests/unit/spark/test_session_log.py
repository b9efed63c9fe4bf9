"""Where a JVM's own words go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater_spark.spark_session import stderr_into

SPEAKS = (sys.executable, "-c", "import sys; print(sys.argv[1], file=sys.stderr)")


def test_children_write_to_the_log_and_then_again_to_us(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "spark.log"
    log.write_text("before\n")
    with stderr_into(log):
        subprocess.run([*SPEAKS, "noise"], check=True)
    subprocess.run([*SPEAKS, "told"], check=True)
    assert log.read_text() == "before\nnoise\n"
    assert capfd.readouterr().err == "told\n"
