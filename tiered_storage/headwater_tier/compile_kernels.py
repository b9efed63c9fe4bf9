"""`python -m headwater_tier.compile_kernels`: compiles what tiering uses into numba's cache.

What is in the cache already is loaded in a moment, so this may run at each start of a service.
"""

from __future__ import annotations

import os
import struct

from headwater.columnar import decode

ROWS = 64
"""The first block, of 32 rows, is read one by one, the second one by the kernel."""
NICE = 5
AVRO_SCHEMA = (
    '{"type":"record","name":"Sample","fields":[{"name":"n","type":"long"},'
    '{"name":"s","type":["null","string"]},{"name":"d","type":"double"}]}'
)


def main() -> None:
    """The log's kernels first, as every topic needs them, and a line on stdout when they are there;
    then those for headers, JSON and Avro, after whatever else there is to do."""
    decode.warm_up(with_headers=False)
    print("log", flush=True)
    os.nice(NICE)
    decode.warm_up()
    _compile_formats()


def _compile_formats() -> None:
    # Only now: the log's kernels are waited for.
    import pyarrow as pa  # noqa: PLC0415

    from headwater_tier.typed.decoding import DeclaredFormat  # noqa: PLC0415
    from headwater_tier.typed.formats.factory import decoder_for  # noqa: PLC0415
    from headwater_tier.typed.without_registry import WithoutRegistry  # noqa: PLC0415

    objects = [b'{"n": %d, "s": "text", "d": 0.25, "b": true}' % i for i in range(ROWS)]
    samples = {
        DeclaredFormat("json"): objects,
        DeclaredFormat("avro", AVRO_SCHEMA): [_datum(i) for i in range(ROWS)],
    }
    for declared, values in samples.items():
        decoder = decoder_for(declared, pa.schema([]), WithoutRegistry())
        decoder.decode(pa.chunked_array([pa.array(values, pa.binary())]))


def _datum(number: int) -> bytes:
    """A record of AVRO_SCHEMA; `number` below 64 takes one byte."""
    return bytes([2 * number, 2, 8]) + b"text" + struct.pack("<d", 0.25)


if __name__ == "__main__":
    main()
