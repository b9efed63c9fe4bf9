"""`python -m headwater_tier.compile_kernels`: compiles what tiering uses into numba's cache.

What is in the cache already is loaded in a moment, so this may run at each start of a service.
"""

from __future__ import annotations

import struct

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
    """A record of AVRO_SCHEMA; `number` below 64 takes one byte."""
    return bytes([2 * number, 2, 8]) + b"text" + struct.pack("<d", 0.25)


if __name__ == "__main__":
    main()
