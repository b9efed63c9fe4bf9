"""A record as the fields of a form, and back to its very bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.values import ConsumerRecord, Headers
from headwater.errors import UsageError
from headwater_gateway.console.messages.produced_fields import as_fields, new_record

blobs = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(lambda t: t.encode())
names = st.from_regex(r"[a-z][a-z0-9_.-]{0,10}", fullmatch=True)


def posted(record: ConsumerRecord) -> dict[str, str]:
    """What a browser sends of these fields: its line ends are CR LF."""
    return {name: text.replace("\n", "\r\n") for name, text in as_fields(record)._asdict().items()}


@given(key=blobs, value=blobs, headers=st.lists(st.tuples(names, blobs), max_size=4))
def test_a_record_that_is_sent_again_has_the_same_bytes(
    key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    record = ConsumerRecord("t", 2, 7, 0, 0, key, value, headers, 0)
    found = new_record(posted(record))
    assert (found.key, found.value, found.headers, found.partition) == (key, value, headers, 2)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"key_kind": "null", "key": "x", "value_kind": "text"}, "key is null"),
        ({"key_kind": "null", "value_kind": "json", "value": "{"}, "value is no JSON"),
        ({"key_kind": "null", "value_kind": "hex", "value": "0x"}, "value is no hex"),
        ({"key_kind": "null", "value_kind": "avro"}, "value_kind"),
        ({"key_kind": "null", "value_kind": "text", "value": "\ud800"}, "half of a pair"),
        ({"key_kind": "null", "value_kind": "null", "headers": ": x"}, "name: value"),
        ({"key_kind": "null", "value_kind": "null", "partition": "-1"}, "partition"),
    ],
)
def test_a_field_that_cannot_be_sent_is_named(fields: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        new_record(fields)
    assert told in str(caught.value)
