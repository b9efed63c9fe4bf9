"""The address of the message browser holds all its state."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from headwater.errors import UsageError
from headwater_gateway.console.messages.address import Address, From, parse_address


@pytest.mark.parametrize(
    "address",
    [
        Address(),
        Address(partitions=(0, 3), start=From.OFFSET, at=1 << 62),
        Address(start=From.VERSION, at=7, filter="value.a == 'x&y'", key="text", value="json"),
        Address(start=From.TIME, at=1_700_000_000_000, rows=500, is_committed=False),
        Address(start=From.LIVE),
        Address(cursor=((0, 5), (2, 9))),
    ],
)
def test_an_address_round_trips(address: Address) -> None:
    assert parse_address(dict(parse_qsl(address.query()))) == address


def test_a_default_address_is_empty() -> None:
    assert Address().query() == ""


def test_times_are_iso_or_milliseconds() -> None:
    assert parse_address({"from": "ts:2023-11-14T22:13:20Z"}).at == 1_700_000_000_000
    assert parse_address({"from": "ts:1700000000000"}).at == 1_700_000_000_000


def test_forms_and_links_name_the_place_apart() -> None:
    wanted = Address(start=From.OFFSET, at=5)
    assert parse_address({"from": "offset", "at": "5"}) == wanted
    assert parse_address({"from": "offset", "offset": "5"}) == wanted
    assert parse_address({"from": "newest", "at": ""}) == Address()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"from": "yesterday"}, "offset:N"),
        ({"from": "offset:-1"}, "from 0"),
        ({"from": "ts:soon"}, "2026-11-21T10:00:00Z"),
        ({"from": "newest:4"}, "takes no number"),
        ({"p": "a"}, "p="),
        ({"p": "1", "n": "100000"}, "1000"),
        ({"key": "<b>"}, "auto"),
        ({"isolation": "dirty"}, "read_committed"),
        ({"filter": "x" * 3000}, "2000"),
        ({"cursor": "0:x"}, "cursor"),
    ],
)
def test_a_bad_parameter_is_named_with_a_remedy(query: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(query)
    assert told in str(caught.value)
