"""The pages docs/spec-*.md name existing tests and cover every statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs").glob("spec-*.md"))
_NAMED = re.compile(r"`([\w/]+\.py)?(?:::(\w+))?`")
_DEFAULT = re.compile(r"Tests are in\s+`([\w/]+)`")
FIRST, LAST = 68, 630
"""The statements about the broker (B1-068 to 630): start, requests, log, replication, offsets, and
the lists of keys, files, paths, codes, metrics and slips."""
TRANSACTIONS = range(82, 102)
"""Of S2: transactions, and the checkpoints of an engine."""
CONTROLLER = ROOT / "docs" / "spec-controller-and-tools.md"
AROUND = ROOT / "docs" / "spec-integrations.md"
AROUND_ROWS = {"B3": (*range(229, 363), *range(437, 449)), "S2": tuple(range(77, 82))}
"""Integrations, the city, the mirror, measured claims; observability."""


def files(page: str, path: str) -> list[Path]:
    """What a page may mean by `path`: from the root, from its folder of tests, or by its name."""
    folder = _DEFAULT.search(page)
    roots = [ROOT, *([ROOT / folder[1]] if folder else [])]
    found = [root / path for root in roots if (root / path).is_file()]
    if found or "/" in path:
        return found
    return [p for p in (ROOT / "tests").rglob(path) if p.name == path]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_test_it_names_is_there(path: Path) -> None:
    page = path.read_text()
    file, missing, count = "", [], 0
    for named, test in _NAMED.findall(page):
        if not (named or test):
            continue
        if named:
            file = named
            if not Path(named).name.startswith("test_"):
                continue  # a module of the project
        count += 1
        texts = [p.read_text() for p in files(page, file)]
        if not texts or (test and not any(f"def {test}(" in text for text in texts)):
            missing.append(f"{file}::{test}")
    assert missing == []
    assert count > 10


def told(pages: Sequence[Path], source: str) -> dict[int, int]:
    """How often the pages' tables tell of each statement of a source."""
    row = re.compile(rf"^\| {source}-([\d, to]+) \|", re.MULTILINE)
    found: dict[int, int] = {}
    for path in pages:
        for cell in row.findall(path.read_text()):
            for part in cell.split(","):
                first, _, last = part.strip().partition(" to ")
                for number in range(int(first), int(last or first) + 1):
                    found[number] = found.get(number, 0) + 1
    return found


def test_every_statement_about_the_broker_is_told_of() -> None:
    numbers = told(PAGES, "B1")
    assert [n for n in range(FIRST, LAST + 1) if n not in numbers] == []


def test_every_statement_about_transactions_is_told_of() -> None:
    numbers = told(PAGES, "S2")
    assert [n for n in TRANSACTIONS if n not in numbers] == []


def test_every_statement_about_controller_and_tools_is_told_of() -> None:
    cells = re.findall(r"^\| (\d[\d, -]*) \|", CONTROLLER.read_text(), re.MULTILINE)
    parts = [part.strip().partition("-") for cell in cells for part in cell.split(",")]
    numbers = {n for low, _, high in parts for n in range(int(low), int(high or low) + 1)}
    assert sorted(set(range(1, 499)) - numbers) == []


@pytest.mark.parametrize("source", AROUND_ROWS)
def test_every_statement_about_the_world_around_is_told_of_once(source: str) -> None:
    assert told([AROUND], source) == dict.fromkeys(AROUND_ROWS[source], 1)
