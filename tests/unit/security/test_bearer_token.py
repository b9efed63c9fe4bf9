"""Bearer tokens of HTTP ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.security.bearer_token import TokenFile, shows

TOKEN = "t0ken-of-the-scraper"


@pytest.mark.parametrize(
    ("authorization", "is_shown"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer {TOKEN} ", True),
        (f"Basic {TOKEN}", False),
        (f"Bearer {TOKEN}x", False),
        ("Bearer ", False),
        ("", False),
    ],
)
def test_a_header_shows_the_token(authorization: str, is_shown: bool) -> None:
    assert shows(authorization, TOKEN) is is_shown
    assert not shows(authorization, "")


@pytest.mark.parametrize(("content", "told"), [(b"short", "fewer than 16"), (b"\xff" * 20, "text")])
def test_a_file_without_a_token_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"config k: .*{told}"):
        TokenFile("k", str(path))
