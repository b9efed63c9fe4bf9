"""Reading Java-style properties files: what Kafka's brokers are configured with."""

from __future__ import annotations

from headwater.errors import UsageError


def parse_properties(text: str, origin: str = "properties") -> dict[str, str]:
    """`key=value` lines; `#` and `!` begin comments, a backslash at a line's end joins lines.

    A key given twice is a UsageError: one of both would be silently lost.
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
