"""A VARIANT column keeps its type while the table grows beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from headwater_tier.typed.decoding import BlobDecoder, DeclaredFormat, Decoded
from headwater_tier.typed.formats.columns import variant_field
from headwater_tier.typed.names import Kind, derived
from typed_topic import JsonDecoder, TypedTopic

FIVE, NO_KEYS = b"\x0c\x05", b"\x01\x00\x00"


class Fives:
    """Every value is the VARIANT 5."""

    schema = pa.schema([variant_field("value")])

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        size = len(blobs)
        kind = self.schema.field(0).type
        parts = {"metadata": NO_KEYS, "value": FIVE}
        column = pa.StructArray.from_arrays(
            [pa.array([parts[child.name]] * size) for child in kind],
            fields=list(kind),
            mask=blobs.is_null().combine_chunks(),
        )
        return Decoded(pa.table([column], schema=self.schema), ())


def decoder_for(declared: DeclaredFormat, known: pa.Schema, schemas: object) -> BlobDecoder:
    return Fives() if declared.variant else JsonDecoder(declared, known)


def test_a_variant_is_a_variant_after_keys_got_columns(tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path)
    topic.configs |= {"headwater.typed.variant": "true", "headwater.key.format": "json"}
    for keys in ('{"a": 1}', '{"b": 2}'):
        topic.produce_pairs(0, (keys.encode(), {"x": 1}), (keys.encode(), None))
        topic.tier()
        assert topic.follow(decoder_for=decoder_for).rows == 2
    table = DeltaTable(derived(topic.location, Kind.TYPED).place.uri)
    fields = {f["name"]: f["type"] for f in json.loads(table.schema().to_json())["fields"]}
    assert (fields["value"], fields["key_a"], fields["key_b"]) == ("variant", "long", "long")
    values = table.to_pyarrow_table().sort_by("offset").column("value").to_pylist()
    assert values == [{"metadata": NO_KEYS, "value": FIVE}, None] * 2
