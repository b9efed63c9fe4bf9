"""How the console shows values: nothing strange gets through, numbers are for people."""

from __future__ import annotations

import unicodedata

import pytest

from headwater_gateway.console import shown
from headwater_gateway.console.addresses import address

DASH = shown.DASH


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("flights", "flights"),
        ("a\u202eb", "a\\u202eb"),
        ("a\x00b\x1b[31m", "a\\x00b\\x1b[31m"),
        ("line\nnext\t.", "line\\nnext\\t."),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("航班 ✈ é", "航班 ✈ é"),
    ],
)
def test_strange_characters_show_as_escapes(text: str, wanted: str) -> None:
    assert shown.visible(text) == wanted


def test_no_control_format_or_bidi_character_is_left() -> None:
    for code in range(0x110000):
        letter = chr(code)
        if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert shown.visible(letter) != letter, hex(code)


def test_lines_keep_line_ends_and_tabs_only() -> None:
    assert shown.visible_lines("a\n\tb\x07\u2066") == "a\n\tb\\x07\\u2066"


@pytest.mark.parametrize(
    ("number", "wanted"),
    [(None, DASH), (0, "0"), (9_999, "9\u202f999"), (12_345, "12.3k"), (2_500_000, "2.5M")],
)
def test_brief_counts(number: int | None, wanted: str) -> None:
    assert shown.brief_count(number) == wanted


@pytest.mark.parametrize(
    ("number", "wanted"),
    [(None, DASH), (-1, DASH), (0, "0 B"), (1536, "1.5 KiB"), (300 * 2**20, "300 MiB")],
)
def test_sizes(number: int | None, wanted: str) -> None:
    assert shown.size(number) == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(None, DASH), (0.25, "250 ms"), (59.0, "59 s"), (600, "10 min"), (9_000, "2.5 h")],
)
def test_durations(seconds: float | None, wanted: str) -> None:
    assert shown.duration(seconds) == wanted


def test_moments() -> None:
    assert shown.moment(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert shown.moment(-1) == DASH
    assert shown.moment(2**62) == f"{2**62} ms"


def test_addresses_hold_any_name() -> None:
    assert address("topics", "flights", sort="lag") == "/console/topics/flights?sort=lag"
    assert address("group", id='a/../"><b>\n') == ("/console/group?id=a%2F..%2F%22%3E%3Cb%3E%0A")
    assert address("topics", q="", only=None, hidden=False, internal=True) == (
        "/console/topics?internal=1"
    )
    assert address() == "/console/"
