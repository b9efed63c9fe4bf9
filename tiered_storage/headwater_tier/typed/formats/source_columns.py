"""From values of a declared type to another column's: what evolution of a schema may meet.

A table's column keeps its type. A writer's new type fits it value by value, where nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa

from headwater_tier.typed.formats.json_fit import (
    BIGINT_MAX,
    BIGINT_MIN,
    Fit,
    exact_integer,
    fit_decimal,
)
from headwater_tier.typed.formats.misfit import does_not_fit, out_of_range
from headwater_tier.typed.formats.rows import FastRows

Read = Callable[[bytes], dict[str, Any]]
"""The row of a blob, by column. Raises NotFittingError."""


class Source(Protocol):
    """A writer's schema, parsed."""

    @property
    def columns(self) -> pa.Schema:
        """The columns that it asks for."""

    def reader(self, schema: pa.Schema) -> Read:
        """A reader of its blobs into the table's columns."""

    def fast(self) -> FastRows | None:
        """The kernel's way for its blobs; None if there is none."""

    def fault_at(self, blob: bytes) -> int | None:
        """The byte at which a blob stops being of this schema; None where no byte tells."""


class SourceRows:
    """Reads rows of one declared schema (`headwater_tier.typed.formats.rows.RowReader`)."""

    def __init__(self, source: Source, schema: pa.Schema) -> None:
        """`schema` has the source's columns already."""
        self.schema = schema
        self.read: Read = source.reader(schema)


def crossing(source: pa.DataType, column: pa.DataType, path: str) -> Fit | None:
    """From a scalar of `source`, never None, to the column's; None if they are the same."""
    if source.equals(column):
        return None
    types = pa.types
    if types.is_integer(source) or types.is_decimal(source):
        if types.is_integer(column):
            return lambda value: _whole(value, path)
        if types.is_floating(column):
            return lambda value: _floating(value, path)
        if types.is_decimal(column):
            return lambda value: fit_decimal(Decimal(value), column, path)
    return refusal(column, path)


def refusal(column: pa.DataType, path: str) -> Fit:
    """A function that refuses every value but None."""

    def refuse(value: Any) -> None:
        if value is not None:
            raise does_not_fit(path, value, column)

    return refuse


def _whole(value: int | Decimal, path: str) -> int:
    whole = exact_integer(value) if isinstance(value, Decimal) else value
    if whole is None:
        raise does_not_fit(path, value, "bigint")
    if not BIGINT_MIN <= whole <= BIGINT_MAX:
        raise out_of_range(path, value, "bigint")
    return whole


def _floating(value: int | Decimal, path: str) -> float:
    number = float(value)
    if Decimal(number) != value:
        raise out_of_range(path, value, "double")
    return number
