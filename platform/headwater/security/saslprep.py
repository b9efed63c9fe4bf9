"""SASLprep (RFC 4013): which user names have one spelling only."""

from __future__ import annotations

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)
"""RFC 4013, sections 2.3 and 2.5: control characters, private use, unassigned code points..."""


def saslprep(text: str) -> str | None:
    """The prepared form of `text`; None when it holds what is prohibited."""
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in text
        if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibited(char) for char in prepared for prohibited in _PROHIBITED):
        return None
    return prepared if _is_one_direction(prepared) else None


def is_prepared(text: str) -> bool:
    """True when SASLprep leaves `text` as it is: no other spelling stands for the same name."""
    return bool(text) and saslprep(text) == text


def _is_one_direction(text: str) -> bool:
    """RFC 3454, section 6: text from right to left begins and ends so, and mixes with no other."""
    if not any(stringprep.in_table_d1(char) for char in text):
        return True
    return (
        not any(stringprep.in_table_d2(char) for char in text)
        and stringprep.in_table_d1(text[0])
        and stringprep.in_table_d1(text[-1])
    )
