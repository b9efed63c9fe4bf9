"""`python -m headwater_tier.compile_kernels`: compiles what tiering uses into numba's cache.

What is in the cache already is loaded in a moment, so this may run at each start of a service.
"""

from __future__ import annotations

import io
import json

import fastavro
import pyarrow as pa

from headwater.columnar import decode
from headwater_tier.typed.decoding import DeclaredFormat
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.formats.rows import FIRST_ROWS
from headwater_tier.typed.without_registry import WithoutRegistry

ROWS = 2 * FIRST_ROWS
"""The first block is read one by one, the second one by the kernel."""
AVRO_SCHEMA = (
    '{"type":"record","name":"Sample","fields":[{"name":"n","type":"long"},'
    '{"name":"s","type":["null","string"]},{"name":"d","type":"double"}]}'
)


def main() -> None:
    """The log's kernels first, as every topic needs them; then JSON's, then Avro's."""
    decode.warm_up()
    objects = [b'{"n": %d, "s": "text", "d": 0.25, "b": true}' % i for i in range(ROWS)]
    _decode(DeclaredFormat("json"), objects)
    _decode(DeclaredFormat("avro", AVRO_SCHEMA), [_datum(i) for i in range(ROWS)])


def _decode(declared: DeclaredFormat, values: list[bytes]) -> None:
    decoder = decoder_for(declared, pa.schema([]), WithoutRegistry())
    decoder.decode(pa.chunked_array([pa.array(values, pa.binary())]))


def _datum(number: int) -> bytes:
    out = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(AVRO_SCHEMA))
    fastavro.schemaless_writer(out, schema, {"n": number, "s": "text", "d": 0.25})
    return out.getvalue()


if __name__ == "__main__":
    main()
