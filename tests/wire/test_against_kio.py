"""Every message in every version: kio decodes its bytes and encodes the same bytes again.

kio (a test dependency) is an independent implementation. Hypothesis fills the fields.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import pkgutil
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from headwater.wire import apis
from headwater.wire.schema import FieldSpec, Message, Struct, decoder, encoder
from wire.kio_newer_versions import NEWER_VERSIONS

INTS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
OWN_TAGS_FROM = 10_000
"""Tagged fields from here on are Headwater's own: other implementations pass them by."""
OWN_KEYS_FROM = 10_000
"""API keys from here on are Headwater's own: other implementations do not have them."""
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def messages() -> Iterator[type[Message]]:
    """Every request and response in `headwater.wire.apis`."""
    for found in pkgutil.iter_modules(apis.__path__):
        module = importlib.import_module(f"{apis.__name__}.{found.name}")
        for name, value in vars(module).items():
            is_message = name.endswith(("Request", "Response")) and hasattr(value, "api_key")
            if is_message and value.api_key < OWN_KEYS_FROM:
                yield value


CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in messages()
    for version in range(cls.versions[0], cls.versions[1] + 1)
]


def primitive(kind: str) -> st.SearchStrategy[Any]:
    if kind in INTS:
        return st.integers(*INTS[kind])
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.uuids() | st.just(UUID(int=0)),
        "string": TEXT,
        "bytes": st.binary(max_size=20),
        "records": st.binary(max_size=40),
    }[kind]


def value_of(name: str, spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    if name == "error_code" or name.endswith("_error_code"):
        one: st.SearchStrategy[Any] = st.integers(-1, 100)
    elif name.endswith("_ms") and isinstance(spec.kind, str):
        one = st.integers(0, 2**31 - 1)  # kio reads these as timedelta
    elif isinstance(spec.kind, str):
        one = primitive(spec.kind)
    else:
        one = struct_of(spec.kind, version)
    if spec.is_array:
        one = st.lists(one, max_size=2).map(tuple)
    return one | st.none() if version in spec.nullable else one


def struct_of(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    fields = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        spec: FieldSpec = field.metadata["wire"]
        if version in spec.versions and (spec.tag or 0) < OWN_TAGS_FROM:
            fields[field.name] = value_of(field.name, spec, version)
    return st.builds(cls, **fields)


def kio_class(cls: type[Message], version: int) -> Any:
    newer = NEWER_VERSIONS.get((cls.__name__, version))
    if newer is not None:
        return newer
    module = re.sub(r"_(request|response)$", "", snake(cls.__name__))
    side = "request" if cls.__name__.endswith("Request") else "response"
    found = importlib.import_module(f"kio.schema.{module}.v{version}.{side}")
    return getattr(found, cls.__name__)


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def plain(value: Any) -> Any:
    """A value that can be compared: memoryviews as bytes, structures as tuples of their fields."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, Struct):
        names = [f.name for f in dataclasses.fields(value)]  # type: ignore[arg-type]
        return (type(value).__name__, *(plain(getattr(value, n)) for n in names))
    return value


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_same_bytes_as_kio(cls: type[Message], version: int) -> None:
    theirs = kio_class(cls, version)
    read, write = entity_reader(theirs), entity_writer(theirs)

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(struct_of(cls, version))
    def check(message: Any) -> None:
        ours = encoder(cls, version)(message)
        entity = read(ours, 0)[0]
        again = io.BytesIO()
        write(again, entity)
        assert again.getvalue() == ours
        back, end = decoder(cls, version)(ours)
        assert end == len(ours)
        assert plain(back) == plain(message)

    check()
