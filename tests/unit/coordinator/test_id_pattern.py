"""Patterns of transactional ids against Python's `re`, and the time that they take."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.transaction.id_pattern import IdPattern

ATOMS = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", "\\d", "\\.", "^", "$"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda row: f"(?:{'|'.join(row)})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "{0}"])).map(
            lambda row: f"({row[0]}){row[1]}"
        )
    ),
    max_leaves=6,
)


@given(pattern=PATTERNS, text=st.text("ab-1.", max_size=6))
def test_the_whole_id_matches_as_with_re(pattern: str, text: str) -> None:
    # Python's $ also matches before a newline at the end, which no text here has.
    assert IdPattern(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)|(b", "*a", "a**", "[a", "[]", "(?=a)", "(?i)a", "\\1", "\\pL", "a{2,1}",
     "a{1001}", "((a{1000}){1000})", "(" * 60 + ")" * 60, "[[:alpha:]]", "\\"],
)  # fmt: skip
def test_what_re2_refuses_or_has_beyond_this_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        IdPattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_holds_up_re_takes_linear_time() -> None:
    assert not IdPattern("(a*)*b").matches("a" * 1_000), "re would not return in this century"
