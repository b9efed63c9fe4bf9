"""docs/spec-log.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "spec-log.md"
DEFAULT_FOLDER = "tests/unit/log/"
_NAMED = re.compile(r"`([\w/]+\.py)?(?:::(\w+))?`")


def test_every_test_it_names_is_there() -> None:
    file, missing, count = "", [], 0
    for path, name in _NAMED.findall(PAGE.read_text()):
        if path:
            file = path if "/" in path else DEFAULT_FOLDER + path
        if not (path or name):
            continue
        count += 1
        text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
        if not text or (name and f"def {name}(" not in text):
            missing.append(f"{file}::{name}")
    assert missing == []
    assert count > 50
