"""Parses `headwater.log.files`: modules whose log lines have a file of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headwater.config.row import SHOWN_CHARS_MAX
from headwater.errors import UsageError

_MODULE = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*")


def log_files(rows: Iterable[str]) -> dict[str, str]:
    """The file of each module, from rows `module=file`. Raises UsageError."""
    found: dict[str, str] = {}
    for row in rows:
        module, equals, path = row.partition("=")
        if not equals or not path or _MODULE.fullmatch(module) is None:
            raise UsageError(
                f"config headwater.log.files: {row[:SHOWN_CHARS_MAX]!r} is not valid; use "
                "module=file, as controller=/var/log/headwater/controller.log"
            )
        if module in found:
            raise UsageError(f"config headwater.log.files: module {module} occurs twice")
        found[module] = path
    return found
