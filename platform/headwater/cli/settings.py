"""`KEY=VALUE` arguments of commands."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import UsageError


def parse_settings(rows: Iterable[str], option: str) -> dict[str, str]:
    """Parse `retention.ms=1000 ...` into a dict. Raises UsageError that names the wrong one."""
    settings: dict[str, str] = {}
    for row in rows:
        key, sign, value = row.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"{option} {row!r}: write KEY=VALUE, as in retention.ms=3600000")
        if key.strip() in settings:
            raise UsageError(f"{option} {row!r}: {key.strip()} is given twice")
        settings[key.strip()] = value
    return settings
