"""Subscriptions by pattern (KIP-848), by RE2 as Kafka's RE2/J: the only user of google-re2.

RE2 takes time in proportion to a name's length, whatever the pattern: Python's own `re` would let
one member's pattern hold up the whole broker. It knows no look-around and no back references.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import re2

from headwater.errors import ErrorCode, KafkaError

PATTERN_CHARS_MAX = 1_000
"""A pattern of this length costs less than 10 ms to compile."""
COMPILED_PATTERNS_MAX = 1_000
"""Patterns that stay compiled between two runs."""


def validate_pattern(pattern: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION, which names the pattern and the position."""
    _compile(pattern)


def resolve_patterns(patterns: Iterable[str], topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """The topics that each pattern matches as a whole. For the pool: work grows with both.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION for a pattern that `validate_pattern` refuses.
    """
    names = list(topics)
    return {pattern: frozenset(filter(_compile(pattern).fullmatch, names)) for pattern in patterns}


@lru_cache(maxsize=COMPILED_PATTERNS_MAX)
def _compile(pattern: str) -> re2._Regexp:
    if len(pattern) > PATTERN_CHARS_MAX:
        detail = f"the pattern has {len(pattern)} characters; at most {PATTERN_CHARS_MAX} are taken"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, detail)
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, _why(pattern, error)) from None


def _why(pattern: str, error: re2.error) -> str:
    """RE2 names the part that it cannot take, not where it is."""
    words = str(error.args[0], "utf-8", "replace") if error.args else "not a pattern of RE2"
    reason, _, part = words.partition(": ")
    position = pattern.find(part) if part else -1
    place = f" at position {position}" if position >= 0 else ""
    named = f" ({part})" if part and part != pattern else ""
    return f"pattern {pattern!r} is not one of RE2: {reason}{named}{place}"
