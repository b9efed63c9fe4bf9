"""The Python of `make setup`: a clearly faster one of the same version, else its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
OWN = sys.executable


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("interpreters", ROOT / ".ci" / "interpreters.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


interpreters = load()


@pytest.fixture
def other(tmp_path: Path) -> str:
    """An executable file that is another Python."""
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return str(path)


def timed(took: dict[str, list[float | None]]) -> Callable[[str], float | None]:
    rounds: dict[str, Iterator[float | None]] = {p: iter(found) for p, found in took.items()}
    return lambda python: next(rounds[python])


@pytest.mark.parametrize(
    ("own", "its", "wins"),
    [
        ([0.020] * 5, [0.016] * 5, True),
        ([0.020, 0.090, 0.021, 0.020, 0.020], [0.080, 0.016, 0.080, 0.080, 0.080], True),
        ([0.020] * 5, [0.019] * 5, False),
        ([0.016] * 5, [0.020] * 5, False),
        ([0.020] * 5, [0.010, None, 0.010, 0.010, 0.010], False),
        ([None] * 5, [0.016] * 5, False),
    ],
)
def test_a_clearly_faster_one_is_taken_however_busy_the_machine(
    other: str, own: list[float | None], its: list[float | None], wins: bool
) -> None:
    chosen, ratio = interpreters.fastest(OWN, [other], timed({OWN: own, other: its}))
    assert chosen == (other if wins else OWN)
    assert ratio == pytest.approx(1.25 if wins else 1.0)


def test_the_same_one_by_another_name_and_what_is_not_there_are_not_measured(
    tmp_path: Path,
) -> None:
    link = tmp_path / "python3"
    link.symlink_to(OWN)
    others = [str(link), str(tmp_path / "none")]
    assert interpreters.fastest(OWN, others, timed({})) == (OWN, 1.0)


def test_what_cannot_make_a_venv_has_no_time(other: str, tmp_path: Path) -> None:
    assert interpreters.seconds(other) is None
    assert interpreters.seconds(str(tmp_path / "none")) is None
    assert interpreters.seconds(OWN) > 0
