"""Where Headwater's answers are meant to differ from Kafka's, with the reason.

`steps`: number of the step in the case -> Headwater's answer. A difference that is no longer there
fails the test, so that this list stays true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """Cases that differ in the same way."""

    reason: str
    cases: dict[str, dict[int, Any]]


DIFFERENCES: tuple[Difference, ...] = ()


def wanted(case: str) -> dict[int, Any]:
    """The answers of a case that differ from Kafka's, by step."""
    found: dict[int, Any] = {}
    for difference in DIFFERENCES:
        found.update(difference.cases.get(case, {}))
    return found
