"""The console's files: no way around escaping in templates and scripts, others' files unchanged."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

CONSOLE = Path(__file__).resolve().parents[2] / "platform/headwater_gateway/console"
VENDOR = CONSOLE / "static/vendor"
OWN = sorted(
    path
    for path in (*CONSOLE.rglob("templates/**/*"), *CONSOLE.rglob("static/**/*"))
    if path.is_file() and VENDOR not in path.parents
)
BANNED = (
    r"\|\s*safe\b",
    r"hx-on",
    r"js:",
    r"javascript:",
    r"(inner|outer)HTML\s*[+=]",
    r"innerHTML",
    r"insertAdjacentHTML",
    r"document\.write",
    r"\beval\(",
    r"new Function",
    r"autoescape\s+false",
    r"\son\w+=",
    r"\sstyle=",
    r"<style",
)
"""Ways around escaping, and inline scripts and styles, which the pages' CSP forbids."""
SWAP = 'hx-swap="outerHTML"'
"""htmx's own word for how a part is exchanged."""
TOTAL_BYTES_MAX = 600_000


def test_there_are_files_to_check() -> None:
    assert {"layout.html", "console.js", "console.css"} <= {path.name for path in OWN}


@pytest.mark.parametrize("path", OWN, ids=lambda p: str(p.relative_to(CONSOLE)))
def test_nothing_goes_around_escaping(path: Path) -> None:
    text = path.read_text()
    assert [pattern for pattern in BANNED if re.search(pattern, text)] == []


def test_scripts_come_from_files() -> None:
    for path in OWN:
        if path.suffix == ".html":
            for tag in re.findall(r"<script[^>]*>", path.read_text()):
                assert "src=" in tag, path


def test_no_page_loads_from_elsewhere() -> None:
    for path in OWN:
        if path.suffix != ".svg":
            assert (
                re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", path.read_text())
                == []
            )


def test_files_of_others_are_those_of_npm() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    listed = {"manifest.json"}
    for package in manifest["packages"]:
        assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package["npm_integrity"])
        assert any(name.endswith("LICENSE") for name in package["files"]), package["name"]
        for name, row in package["files"].items():
            digest = hashlib.sha512((VENDOR / name).read_bytes()).digest()
            assert row["sha512"] == f"sha512-{base64.b64encode(digest).decode()}", name
            listed.add(name)
    assert {path.name for path in VENDOR.iterdir()} == listed


def test_the_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in CONSOLE.rglob("static/**/*")) < TOTAL_BYTES_MAX
