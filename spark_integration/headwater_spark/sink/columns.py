"""The columns of a sink, checked before any task runs. Imports no pyspark."""

from __future__ import annotations

import pyarrow as pa

from headwater.columnar.schema import HEADERS
from headwater.errors import UsageError
from headwater_spark.sink.sink_options import SinkOptions

_TEXT_OR_BYTES = ("binary", "string")
_COLUMNS = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": ("string",),
    "partition": ("int32",),
    "headers": (str(HEADERS),),
}


def check_columns(schema: pa.Schema, options: SinkOptions, overwrite: bool) -> None:
    """Check schema and options before any task runs. Raises UsageError with a remedy."""
    if overwrite:
        raise UsageError('a topic can only be appended to: use .mode("append")')
    for column in schema:
        accepted = _COLUMNS.get(column.name)
        if accepted is None:
            raise UsageError(
                f"a headwater sink has no column {column.name!r}, only {', '.join(_COLUMNS)}: put"
                " your columns into value, for example with to_json(struct(*))"
            )
        if _type_name(column.type) not in accepted:
            raise UsageError(
                f"column {column.name!r} must be {' or '.join(accepted)}, not {column.type}"
            )
    if "value" not in schema.names:
        raise UsageError("a headwater sink needs a column 'value'")
    if options.topic is None and "topic" not in schema.names:
        raise UsageError("name the topic in option 'topic' or in a column 'topic'")


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        is_pair = pa.types.is_struct(kind.value_type) and [
            (f.name, str(f.type)) for f in kind.value_type
        ] == [("key", "string"), ("value", "binary")]
        return str(HEADERS) if is_pair else str(kind)
    return str(kind)
