"""Where a topic's own config may put its Delta table. Pure."""

from __future__ import annotations

from collections.abc import Iterable

FILE = "file://"
_ODD = ("%", "\\", "?", "#")
"""Characters by which a path could mean another one than it says."""


def is_within(uri: str, bases: Iterable[str]) -> bool:
    """True when `uri` is one of the folders or below one, as its text says: a path that goes up, or
    is written with escapes, is below none."""
    place = _normal(uri)
    return any(_is_below(place, _normal(base)) for base in bases if base)


def _normal(uri: str) -> str:
    text = uri.strip().rstrip("/")
    if text.startswith("/"):
        text = FILE + text
    scheme, found, rest = text.partition("://")
    return f"{scheme.lower()}://{rest}" if found else text


def _is_below(place: str, base: str) -> bool:
    if place == base:
        return True
    if not place.startswith(f"{base}/"):
        return False
    rest = place[len(base) + 1 :]
    return not any(odd in rest for odd in _ODD) and not any(
        part in ("", ".", "..") for part in rest.split("/")
    )
