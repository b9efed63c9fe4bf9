"""Rebuilds record batches from rows of a log table, for a fetch of offsets that are tiered."""

from __future__ import annotations

from typing import Any

from headwater.columnar.encode import arrow_to_batches
from headwater_tier.reader import RowRange

BATCH_BYTES_MAX = 256 * 1024
"""Of a rebuilt batch, which a fetch with a smaller limit gets whole."""


def rebuild_segment(found: RowRange, path: str) -> dict[str, Any]:
    """Write the rows as record batches to the file `path`.

    Returns `end` (the offset after them), `batches` ([base offset, bytes] of each) and `sources`
    (the data files they came from). Raises OSError.
    """
    batches = arrow_to_batches(
        found.rows,
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        batch_bytes_max=BATCH_BYTES_MAX,
    )
    with open(path, "wb") as segment:
        segment.writelines(batch.data for batch in batches)
    return {
        "end": found.end_offset,
        "batches": [[batch.base_offset, len(batch.data)] for batch in batches],
        "sources": found.paths,
    }
