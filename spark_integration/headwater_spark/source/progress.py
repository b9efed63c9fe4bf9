"""The lag of a streaming query, from the offsets in its progress. No pyspark.

Python sources report no metrics to Spark, so `lastProgress` has no lag of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headwater_spark.source import positions
from headwater_spark.source.positions import Position


def lag(progress: Any) -> dict[tuple[str, int], int]:
    """Offsets between a query's position and the newest offset it has seen, per partition.

    `progress` is `query.lastProgress` or a listener's `event.progress`. Offsets are not rows: gaps
    (control records, compaction) count. Sources of other formats are left out.
    """
    result: dict[tuple[str, int], int] = {}
    for end, latest in source_offsets(progress):
        for tp, offset in latest.items():
            result[tp] = max(0, offset - end.get(tp, 0))
    return result


def source_offsets(
    progress: Any,
) -> list[tuple[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int]]]:
    """(end, latest) of each headwater source in a query's progress; other sources are left out."""
    found = []
    for source in progress["sources"] if isinstance(progress, dict) else progress.sources:
        end = _position(source, "endOffset")
        if end is not None:
            latest = _position(source, "latestOffset") or end
            found.append((end.end, latest.end))
    return found


def _position(source: Any, name: str) -> Position | None:
    """A headwater source's offset; None for any other source's, whose text may not even be JSON.

    A listener gives text, and the text "None" where a source (Delta's) reports no latest offset.
    """
    value = source.get(name) if isinstance(source, dict) else getattr(source, name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return positions.from_json(value) if positions.is_position(value) else None
