"""Rows of JSON values, one at a time: by a fixed schema, or by one that grows with the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater_tier.kernels import KERNELS
from headwater_tier.typed.formats.column_types import (
    COLUMNS_MAX,
    NESTING_MAX,
    TOO_DEEP,
    VALUE_COLUMN,
    count_columns,
    nesting,
    widened_schema,
)
from headwater_tier.typed.formats.json_fit import Fit, NeedsExactError, UnknownKeyError, fit_of
from headwater_tier.typed.formats.json_infer import inferred
from headwater_tier.typed.formats.json_scan import is_simple
from headwater_tier.typed.formats.json_values import exact_value, fast_value
from headwater_tier.typed.formats.misfit import NotFittingError, does_not_fit
from headwater_tier.typed.quarantine_reasons import Reason


class JsonRows:
    """Reads rows (`headwater_tier.typed.formats.rows.RowReader`)."""

    def __init__(self, schema: pa.Schema, grows: bool, is_record: bool = True) -> None:
        """`grows`: keys without a column add one, and a value that is no object is the column
        `value`. Otherwise such keys are passed over; without `is_record` the column `value` has
        all that comes."""
        self._grows = grows
        self._is_record = is_record
        self._schema = schema
        self._fit: Fit = fit_of(pa.struct(list(schema)), "", grows)

    @property
    def schema(self) -> pa.Schema:
        """The columns by now."""
        return self._schema

    def read(self, blob: bytes) -> dict[str, Any]:
        """The row, by column. Raises NotFittingError; the schema is then as before."""
        if KERNELS.are_ready and is_simple(np.frombuffer(blob, np.uint8), 0, len(blob)):
            try:
                return self.row_of(fast_value(blob))
            except NeedsExactError:
                return self.read_exact(blob)
        return self.read_exact(blob)

    def read_exact(self, blob: bytes) -> dict[str, Any]:
        """`read` without orjson's short cut: slower, for any text."""
        return self.row_of(exact_value(blob))

    def adopt(self, schema: pa.Schema) -> None:
        """Go on with a schema that adds to the present one."""
        self._schema = schema
        self._fit = fit_of(pa.struct(list(schema)), "", self._grows)

    def row_of(self, value: Any) -> dict[str, Any]:
        """The row of a parsed text. Raises NotFittingError, NeedsExactError."""
        is_object = type(value) is dict
        if is_object if self._grows else self._is_record:
            record = value
        else:
            record = {VALUE_COLUMN: value}
        if record is None:
            raise does_not_fit("the value", "null", "struct")
        try:
            row = self._fit(record)
        except UnknownKeyError:
            row = self._grown(record)
        return row or {}

    def _grown(self, record: dict[str, Any]) -> dict[str, Any] | None:
        wanted = inferred(record)
        schema = widened_schema(self._schema, wanted or [])
        if count_columns(schema) > COLUMNS_MAX:
            detail = f"the table has {COLUMNS_MAX} columns: declare a schema, or use a VARIANT"
            raise NotFittingError(Reason.DOES_NOT_FIT, detail)
        if nesting(schema) > NESTING_MAX:
            raise NotFittingError(Reason.DOES_NOT_FIT, TOO_DEEP)
        try:
            row: dict[str, Any] | None = fit_of(pa.struct(list(schema)), "", True)(record)
        except UnknownKeyError:  # a key below a column of another type: it has no room
            row = fit_of(pa.struct(list(schema)), "", False)(record)
        if not schema.equals(self._schema):
            self.adopt(schema)
        return row
