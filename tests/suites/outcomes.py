"""The outcome of a client's run in one cell of a table of the docs."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from suites import parts

WORKS = "yes"


def outcome(attempt: Callable[[], object]) -> str:
    """WORKS, what is missing here, or the error by which the client failed."""
    try:
        attempt()
    except parts.MissingPartError as error:
        return f"not run: {error}"
    except Exception as error:  # noqa: BLE001 - whatever a client throws is its outcome
        traceback.print_exc()
        words = " ".join(str(error).split()).replace("|", "/")
        return f"no: {type(error).__name__}: {words[:160]}"
    return WORKS
