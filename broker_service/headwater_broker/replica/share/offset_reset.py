"""share.auto.offset.reset: where a share group begins that has read nothing of a partition."""

from __future__ import annotations

import re

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.replica.read_service import EARLIEST, LATEST

BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def reset_query(value: str, now_ms: int) -> int:
    """The timestamp that ListOffsets would be asked for: -1 latest, -2 earliest, or a time.

    Raises KafkaError(INVALID_CONFIG) for a value that names none of them.
    """
    name = value.strip().lower()
    if name == "latest":
        return LATEST
    if name == "earliest":
        return EARLIEST
    duration_ms = _duration_ms(name[len(BY_DURATION) :]) if name.startswith(BY_DURATION) else None
    if duration_ms is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"share.auto.offset.reset is {value!r}: set it to latest, earliest or "
            "by_duration:<ISO 8601 duration>, such as by_duration:PT1H",
        )
    return max(now_ms - duration_ms, 0)


def _duration_ms(text: str) -> int | None:
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts:
        return None
    return int(sum(float(value) * _UNITS_MS[unit] for unit, value in parts.items()))
