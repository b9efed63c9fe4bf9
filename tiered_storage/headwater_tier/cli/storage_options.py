"""`--storage-option KEY=VALUE`: the options of an object store, on the command line."""

from __future__ import annotations

from headwater.errors import UsageError


def storage_options(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` options as pairs. Raises UsageError."""
    pairs = []
    for option in given:
        key, found, value = option.partition("=")
        if not found or not key:
            raise UsageError(f"--storage-option {option!r}: give KEY=VALUE")
        pairs.append((key, value))
    return tuple(pairs)
