"""A VARIANT column keeps its type while the table grows beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater_tier.typed.decoding import BlobDecoder, DeclaredFormat, Decoded
from headwater_tier.typed.formats.column_types import variant_field
from headwater_tier.typed.formats.factory import decoder_for as real_decoder
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.retype import retype
from headwater_tier.typed.verify_derived import verify_derived
from typed_topic import CLOCK, JsonDecoder, NoSchemas, TypedTopic

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


@pytest.mark.parametrize("key_format", ["", "json"])
def test_the_latest_rows_of_a_variant_are_kept_by_rewriting_files(
    tmp_path: Path, key_format: str
) -> None:
    topic = TypedTopic(tmp_path)
    topic.configs |= {"headwater.typed.variant": "true", "headwater.latest.enable": "true"}
    if key_format:
        topic.configs["headwater.key.format"] = key_format
    one, two, three = (b'{"k": %d}' % n for n in (1, 2, 3))
    for pairs in (
        [(one, {"n": 1}), (two, {"n": 2}), (two, {"n": 3})],
        [(one, {"n": 4}), (two, None), (three, {"n": 5})],
        [(three, None), (two, {"n": 6}), (two, {"n": 7})],
    ):
        topic.produce_pairs(0, *pairs)
        topic.tier()
        result = topic.follow(decoder_for=real_decoder)
        assert result.latest_problem == "" and result.latest is not None
        assert result.latest.behind == 0
    table = DeltaTable(derived(topic.location, Kind.LATEST).place.uri)
    assert sorted(table.to_pyarrow_table().column("offset").to_pylist()) == [3, 8]
    assert verify_derived(topic.location).equal


def test_a_key_that_a_table_with_a_variant_cannot_take_is_quarantined_and_stops_nothing(
    tmp_path: Path,
) -> None:
    topic = TypedTopic(tmp_path, partitions=1)
    topic.configs |= {"headwater.typed.variant": "true", "headwater.key.format": "json"}
    more = {"decoder_for": real_decoder}
    topic.produce_pairs(0, (b'{"k": {"a": 1}, "l": [{"x": 1}]}', {"n": 0}))
    topic.tier()
    assert topic.follow(**more).rows == 1
    topic.produce_pairs(
        0,
        (b'{"k": {"a": 2, "b": 3}}', {"n": 1}),
        (b'{"k": {"a": 4, "b": null}, "c": 5}', {"n": 2}),
        (b'{"l": [{"x": 6}, {"x": 7, "y": 8}]}', {"n": 3}),
        (b'{"k": {"a": 9}}', b"{bad"),
        (b'{"k": {"a": 10}}', {"n": 5}),
    )
    topic.tier()
    result = topic.follow(**more)
    assert (result.rows, result.quarantined, result.problem) == (2, 3, "")
    typed = DeltaTable(derived(topic.location, Kind.TYPED).place.uri).to_pyarrow_table()
    rows = [(row["offset"], row["key_k"], row["key_c"]) for row in typed.to_pylist()]
    assert sorted(rows) == [(0, {"a": 1}, None), (2, {"a": 4}, 5), (5, {"a": 10}, None)]
    held = DeltaTable(derived(topic.location, Kind.QUARANTINE).place.uri).to_pyarrow_table()
    bad = held.sort_by("offset").select(["offset", "reason"]).to_pylist()
    assert [tuple(row.values()) for row in bad] == [
        (1, "does not fit"),
        (3, "does not fit"),
        (4, "malformed"),
    ]
    assert verify_derived(topic.location).equal
    done = retype(topic.location, topic.configs, NoSchemas(), CLOCK, entropy=topic.entropy, **more)
    assert (done.rows, done.quarantined) == (5, 1)
