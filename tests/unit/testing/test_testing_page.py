"""docs/testing.md is true: its examples run, in workers of pytest-xdist, outside the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)

LOADED = """
import sys

def test_nothing_of_the_broker_is_loaded():
    loaded = {n for n in sys.modules if n.split(".")[0] in ("headwater", "headwater_broker")}
    assert loaded == {
        "headwater_broker", "headwater_broker.testing", "headwater_broker.testing.plugin"
    }
"""
FAILING = """
import logging
import pytest

def test_an_error_of_the_broker(headwater_broker):
    async def fail(server):
        logging.getLogger("headwater_broker.log").error("the disk is gone")
    headwater_broker.call(fail)

def test_an_error_that_is_expected(headwater_broker):
    async def fail(server):
        logging.getLogger("headwater_broker.log").error("the disk is gone")
    headwater_broker.call(fail)
    assert headwater_broker.errors == ["headwater_broker.log: the disk is gone"]
    headwater_broker.errors.clear()

@pytest.mark.headwater(port=9092)
def test_an_unknown_option(headwater_broker):
    pass

@pytest.mark.headwater(properties={"a.key": "1"})
def test_an_unknown_key(headwater_broker):
    pass
"""


def run(folder: Path, *options: str) -> str:
    """The output of pytest over a folder of tests."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = ignore:(open|read)_text is deprecated:DeprecationWarning\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", *options, str(folder)]
    known = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=folder, env=known, capture_output=True, text=True, timeout=200, check=False
    )
    return done.stdout + done.stderr


def test_the_examples_run(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 9
    for number, text in enumerate(EXAMPLES):
        (tmp_path / f"test_example_{number}.py").write_text(text)
    said = run(tmp_path, "-n", "2", "-W", "error::pytest.PytestUnhandledThreadExceptionWarning")
    assert re.search(r"^\d+ passed in", said, re.MULTILINE), said


def test_what_fails_says_why(tmp_path: Path) -> None:
    """And pytest loads no broker before a test asks for one."""
    (tmp_path / "test_1_loaded.py").write_text(LOADED)
    (tmp_path / "test_2_failing.py").write_text(FAILING)
    said = run(tmp_path, "-p", "no:randomly", "--tb=line")
    assert "3 passed, 3 errors" in said, said
    assert "BrokerFailedError: the broker logged errors:" in said, said
    assert "headwater_broker.log: the disk is gone" in said, said
    assert "does not take port: give files= or properties=" in said, said
    assert "config a.key: no such broker key" in said, said


@pytest.mark.parametrize("word", ["headwater_broker", "headwater_topic", "headwater_bootstrap"])
def test_the_fixtures_are_listed(word: str) -> None:
    assert f"| `{word}` |" in PAGE.read_text()
