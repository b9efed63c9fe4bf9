"""Properties files as `java.util.Properties.load` reads them: clients' files of Kafka's tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headwater.errors import UsageError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")


def read_java_properties(path: str, option: str) -> dict[str, str]:
    """The properties of a file. Raises UsageError that names `option` and the file, no value."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(f"{option} {path!r} cannot be read: {reason}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{option} {path!r} is not text in UTF-8") from None
    return parse_java_properties(text, f"{option} {path}")


def parse_java_properties(text: str, origin: str) -> dict[str, str]:
    """`key=value`, `key:value` or `key value` per line, with Java's escapes; the last value of a
    key holds, as in Java."""
    found = {}
    for line in _logical_lines(text):
        key, at = _word(line, 0, origin, "=:" + _BLANK)
        at = _skip(line, at)
        if at < len(line) and line[at] in "=:":
            at = _skip(line, at + 1)
        found[key], _ = _word(line, at, origin, "")
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a line that ends with an odd number of backslashes
    continues on the next."""
    pending: str | None = None
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending = line[:-1]
            continue
        pending = None
        yield line
    if pending:
        yield pending


def _skip(line: str, at: int) -> int:
    while at < len(line) and line[at] in _BLANK:
        at += 1
    return at


def _word(line: str, at: int, origin: str, ends: str) -> tuple[str, int]:
    """The text from `at` to the first of `ends`, escapes replaced, and where it ends."""
    found = []
    while at < len(line) and line[at] not in ends:
        char = line[at]
        at += 1
        if char == "\\" and at < len(line):
            char = line[at]
            at += 1
            if char == "u":
                digits = line[at : at + 4]
                if not _UNICODE.fullmatch(digits):
                    raise UsageError(f"{origin}: \\u is not followed by four hexadecimal digits")
                char, at = chr(int(digits, 16)), at + 4
            else:
                char = _ESCAPES.get(char, char)
        found.append(char)
    return "".join(found), at
