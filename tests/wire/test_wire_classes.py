"""`wire_schema` behaves like `dataclass(frozen=True, slots=True, kw_only=True)`."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from headwater.wire.schema import Struct, wire, wire_schema


@wire_schema
class Place(Struct):
    name: str = wire("string")
    rows: tuple[int, ...] = wire("int32", array=True)
    rack: str | None = wire("string", nullable="0+", default=None)


@wire_schema
class Other(Struct):
    name: str = wire("string")
    rows: tuple[int, ...] = wire("int32", array=True)
    rack: str | None = wire("string", nullable="0+", default=None)


def test_values_are_compared_hashed_copied_and_shown_by_their_fields() -> None:
    one = Place(name="a", rows=(1, 2))
    assert one == Place(name="a", rows=(1, 2), rack=None)
    assert one != Place(name="a", rows=(1, 3))
    assert one != Other(name="a", rows=(1, 2))
    assert hash(one) == hash(Place(name="a", rows=(1, 2)))
    assert repr(one) == "Place(name='a', rows=(1, 2), rack=None)"
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one) == one
    assert dataclasses.replace(one, rack="r") == Place(name="a", rows=(1, 2), rack="r")
    assert (Place().name, Place().rows) == ("", ())


def test_a_value_never_changes() -> None:
    one = Place(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name
    assert not hasattr(one, "__dict__")


def test_only_fields_are_taken_and_only_by_name() -> None:
    with pytest.raises(TypeError):
        Place(nome="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Place("a")  # type: ignore[misc]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Newer(Place):
    zone: str = wire("string", "1+")


def test_a_frozen_dataclass_may_extend_one() -> None:
    Place(name="a")  # its own __init__ is compiled
    one = Newer(name="a", zone="z")
    assert (one.name, one.zone) == ("a", "z")
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != Newer(name="a")
    assert repr(one) == "Newer(name='a', rows=(), rack=None, zone='z')"
