"""Short ways to decode a few blobs in tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater_tier.typed.decoding import DeclaredFormat, Decoded
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.memory_schemas import MemorySchemas
from headwater_tier.typed.quarantine_reasons import Reason

NOTHING = pa.schema([])


def decode(
    declared: DeclaredFormat,
    blobs: list[bytes | None],
    known: pa.Schema = NOTHING,
    schemas: MemorySchemas | None = None,
) -> Decoded:
    decoder = decoder_for(declared, known, schemas or MemorySchemas())
    return decoder.decode(pa.chunked_array([blobs], type=pa.binary()))


def rows_of(decoded: Decoded) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = decoded.columns.to_pylist()
    return rows


def reasons(decoded: Decoded) -> dict[int, Reason]:
    return {misfit.row: misfit.reason for misfit in decoded.misfits}
