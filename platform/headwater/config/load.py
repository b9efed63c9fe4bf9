"""Parses Java properties files, the format of Kafka's broker configuration."""

from __future__ import annotations

from headwater.errors import UsageError


def parse_properties(text: str, origin: str = "properties") -> dict[str, str]:
    """`key=value` lines; `#` and `!` begin comments, a backslash at a line's end joins lines.

    A key that stands there twice is a UsageError: one of its values would be lost silently.
    """
    result: dict[str, str] = {}
    pending, begun = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        line = pending + raw.strip()
        begun = begun if pending else number
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        key, sign, value = line.partition("=")
        key = key.strip()
        if not sign or not key:
            raise UsageError(f"{origin} line {begun}: {line!r} is not of the form key=value")
        if key in result:
            raise UsageError(f"{origin} line {begun}: {key} is given twice; keep one")
        result[key] = value.strip()
    return result
