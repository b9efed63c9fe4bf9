"""Headless Chromium: loads a page, lets it run, returns the DOM or takes a picture."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
TIMEOUT_S = 90


def find_browser() -> str:
    """Its path. Without one the test fails, or is skipped where `make setup` cannot install it."""
    given = os.environ.get("HEADWATER_CHROMIUM")
    for name in (given, *NAMES):
        path = shutil.which(name) if name else None
        if path:
            return path
    missing = (
        "no Chromium: install the package `chromium` (apt-get install chromium), "
        "or name a browser in HEADWATER_CHROMIUM"
    )
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"{missing}; `make setup` installs it only as root with apt-get")
    pytest.fail(missing)


def dump_dom(url: str, profile: Path, page_ms: int, width: int = 1280) -> str:
    """The DOM after `page_ms` of the page's virtual time, in which the network takes no time."""
    return _run(url, profile, page_ms, "--dump-dom", f"--window-size={width},900")


def screenshot(url: str, profile: Path, page_ms: int, picture: Path) -> None:
    """A PNG of the page."""
    _run(url, profile, page_ms, f"--screenshot={picture}", "--window-size=1280,900")


def _run(url: str, profile: Path, page_ms: int, *more: str) -> str:
    done = subprocess.run(
        [
            find_browser(),
            *FLAGS,
            f"--user-data-dir={profile}",
            f"--virtual-time-budget={page_ms}",
            *more,
            url,
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
