"""Values as they are shown: strange characters as escapes, numbers and times for people. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

STRANGE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e007f]"
)
"""Controls, and characters that nobody sees or that reorder text (bidi): names lie by them."""
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
COUNT_UNITS = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))
DASH = "\u2013"
MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400


def visible(text: str) -> str:
    """The text with strange characters as escapes: `\\u202e`."""
    return STRANGE.sub(_escape, text)


def visible_lines(text: str) -> str:
    """The same, with line ends and tabs as they are: for a text that is shown as several lines."""
    return STRANGE.sub(lambda m: m[0] if m[0] in SHORT else _escape(m), text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in SHORT:
        return SHORT[match[0]]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def count(number: float | None) -> str:
    """A number with thin groups: `12 345 678`; a dash for None."""
    if number is None:
        return DASH
    return f"{number:,.0f}".replace(",", "\u202f")


def brief_count(number: float | None) -> str:
    """A number in few letters: `12.3k`."""
    if number is None:
        return DASH
    for size, unit in COUNT_UNITS:
        if abs(number) >= size:
            value = number / (1_000 if unit == "k" else size)
            return f"{value:.1f}{unit}" if abs(value) < 100 else f"{value:.0f}{unit}"
    return count(number)


def counted(number: int, thing: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def size(number: float | None) -> str:
    """Bytes: `1.5 MiB`; a dash for None or -1."""
    if number is None or number < 0:
        return DASH
    value = float(number)
    for unit in BYTE_UNITS:
        if value < 1024 or unit == BYTE_UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """A span of time: `4 s`, `12 min`, `3.5 h`, `2 d`."""
    if seconds is None:
        return DASH
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    if abs(seconds) < 2 * HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    if abs(seconds) < 2 * DAY_S:
        return f"{seconds / HOUR_S:.1f} h"
    return f"{seconds / DAY_S:.0f} d"


def moment(ms: int | None) -> str:
    """A time in UTC, `2026-11-25 18:20:03.120Z`; a dash for None or a negative one."""
    if ms is None or ms < 0:
        return DASH
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return f"{at:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}Z"
