"""Subscriptions by pattern: RE2's language, the whole name, errors that say where."""

from __future__ import annotations

import time

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.group.consumer.regex import (
    PATTERN_CHARS_MAX,
    resolve_patterns,
    validate_pattern,
)


def test_a_pattern_matches_whole_names() -> None:
    found = resolve_patterns(
        ["orders", "orders.*", r"orders-\d+", "o|p"], ["orders", "orders-7", "p", "my-orders"]
    )
    assert found == {
        "orders": {"orders"},
        "orders.*": {"orders", "orders-7"},
        r"orders-\d+": {"orders-7"},
        "o|p": {"p"},
    }


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("flights-(?=a)b", ("invalid perl operator", "(?=", "position 8")),
        ("a(", ("missing )", "'a('", "position 0")),
        ("ab[z-a]", ("character class range", "z-a", "position 3")),
        (r"(a)\1", ("invalid escape", "position 3")),
        ("*", ("no argument for repetition", "position 0")),
        ("a{1001}", ("repetition size", "{1001}", "position 1")),
        ("a" * (PATTERN_CHARS_MAX + 1), (f"{PATTERN_CHARS_MAX + 1} characters",)),
    ],
)
def test_what_re2_does_not_know_is_refused_with_its_place(
    pattern: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_a_hostile_pattern_costs_no_more_than_another() -> None:
    """Python's `re` would take 2^40 steps for one such name."""
    started = time.process_time()
    names = [f"{'a' * 40}{n}!" for n in range(2_000)]
    assert resolve_patterns(["(a+)+$", "(a|a)*b"], names) == {
        "(a+)+$": frozenset(),
        "(a|a)*b": frozenset(),
    }
    assert time.process_time() - started < 5
