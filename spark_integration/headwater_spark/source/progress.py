"""How far a streaming query is behind, read from its progress.

Python sources report no metrics to Spark. No pyspark here: progress is a plain document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headwater_spark.source import positions


def lag(progress: Any) -> dict[tuple[str, int], int]:
    """Offsets between what a query has read and the newest it has seen, per partition.

    `progress` is `query.lastProgress` or a listener's `event.progress`. Offsets are not rows: gaps
    (control records, compaction) count.
    """
    result: dict[tuple[str, int], int] = {}
    for end, latest in source_offsets(progress):
        for tp, offset in latest.items():
            result[tp] = max(0, offset - end.get(tp, 0))
    return result


def source_offsets(
    progress: Any,
) -> list[tuple[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int]]]:
    """(end, latest) of each headwater source in a query's progress."""
    found = []
    for source in progress["sources"] if isinstance(progress, dict) else progress.sources:
        end, latest = _field(source, "endOffset"), _field(source, "latestOffset")
        if end is None or positions.is_initial(end) or "to" not in end:
            continue
        position = positions.from_json(end)
        newest = positions.from_json(latest).end if latest and "to" in latest else position.end
        found.append((position.end, newest))
    return found


def _field(source: Any, name: str) -> dict[str, Any] | None:
    value = source.get(name) if isinstance(source, dict) else getattr(source, name)
    if isinstance(value, str):
        value = json.loads(value) if value and value != "null" else None
    return value if isinstance(value, dict) else None
