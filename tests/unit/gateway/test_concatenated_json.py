"""Objects one after the other are cut apart, however the bytes come."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.concatenated_json import Splitter

LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)
OBJECTS = st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=5)


@given(OBJECTS, st.integers(1, 20), st.sampled_from(["", " ", "\n", "\r\n\t"]), st.booleans())
def test_any_objects_in_any_pieces(
    documents: list[Any], size: int, between: str, is_ascii: bool
) -> None:
    text = between.join(json.dumps(d, ensure_ascii=is_ascii) for d in documents)
    blob = text.encode("utf-8", "surrogatepass")
    splitter = Splitter(10_000_000)
    found = [
        text for at in range(0, len(blob), size) for text in splitter.feed(blob[at : at + size])
    ]
    assert [json.loads(text.decode("utf-8", "surrogatepass")) for text in found] == documents
    splitter.end()


@pytest.mark.parametrize("text", [b"[1]", b'"a"', b"1", b"}", b",{}", b"null"])
def test_what_is_no_object(text: bytes) -> None:
    with pytest.raises(GatewayError) as refused:
        Splitter(1_000).feed(text)
    assert refused.value.status == 400


def test_what_comes_before_a_fault_counts() -> None:
    splitter = Splitter(1_000)
    assert splitter.feed(b'{"a":1},{"b":2}') == [b'{"a":1}']
    for call in (splitter.end, lambda: splitter.feed(b"{}")):
        with pytest.raises(GatewayError):
            call()


def test_a_long_object() -> None:
    splitter = Splitter(1_000)
    assert len(splitter.feed(b"{}" * 2_000)) == 2_000
    with pytest.raises(GatewayError) as refused:
        splitter.feed(b'{"a":"' + b"x" * 1_000)
    assert refused.value.status == 413


def test_an_object_that_does_not_end() -> None:
    splitter = Splitter(1_000)
    assert splitter.feed(b'{"a": "}') == []
    with pytest.raises(GatewayError, match="does not end"):
        splitter.end()
