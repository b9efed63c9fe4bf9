"""Quota entities: their paths, and which quota applies to a client."""

from __future__ import annotations

import pytest

from headwater.config.quota_precedence import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    connection_rate_of,
    entity_of,
    entity_path,
    quota_of,
)


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ({"client-id": "app"}, "clients/app"),
        ({"client-id": None}, "clients/<default>"),
        ({"client-id": "<default>"}, "clients/%3Cdefault%3E"),
        ({"client-id": "a/b ~*", "user": None}, "users/<default>/clients/a%2Fb%20%7E%2A"),
        ({"user": "ü"}, "users/%C3%BC"),
        ({"ip": "::1"}, "ips/%3A%3A1"),
    ],
)
def test_an_entity_and_its_path_are_each_others(entity: dict[str, str | None], path: str) -> None:
    assert entity_path(entity) == path
    assert entity_of(path) == entity


@pytest.mark.parametrize(
    "path", ["", "clients", "users/u/clients", "clients/c/users/u", "ips/a/clients/c", "brokers/1"]
)
def test_what_is_no_path_of_an_entity(path: str) -> None:
    assert entity_of(path) is None


ORDER = [
    "users/u/clients/c",
    "users/u/clients/<default>",
    "users/u",
    "users/<default>/clients/c",
    "users/<default>/clients/<default>",
    "users/<default>",
    "clients/c",
    "clients/<default>",
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_special_quota_counts(first: int) -> None:
    """As in Kafka's documentation of quotas, from (1) to (8)."""
    stored = {path: {PRODUCER_BYTE_RATE: str(n + 1)} for n, path in enumerate(ORDER) if n >= first}
    found = quota_of(stored, PRODUCER_BYTE_RATE, "u", "c")
    assert found is not None and found[0] == first + 1
    assert quota_of(stored, CONSUMER_BYTE_RATE, "u", "c") is None


def test_who_shares_a_quota() -> None:
    def shared(path: str, user: str = "u", client: str = "c") -> tuple[str, str]:
        found = quota_of({path: {PRODUCER_BYTE_RATE: "1"}}, PRODUCER_BYTE_RATE, user, client)
        assert found is not None
        return found[1]

    assert shared("users/u") == shared("users/<default>") == ("u", "")  # all clients of the user
    assert shared("clients/c") == shared("clients/<default>") == ("", "c")  # of all users
    assert shared("users/u/clients/<default>") == ("u", "c")


def test_each_key_looks_for_itself_and_leaves_out_what_is_no_number() -> None:
    stored = {
        "users/u": {PRODUCER_BYTE_RATE: "soon", CONSUMER_BYTE_RATE: "7"},
        "clients/c": {PRODUCER_BYTE_RATE: "5"},
    }
    assert quota_of(stored, PRODUCER_BYTE_RATE, "u", "c") == (5, ("", "c"))
    assert quota_of(stored, CONSUMER_BYTE_RATE, "u", "c") == (7, ("u", ""))


def test_an_address_goes_before_the_default() -> None:
    key = "connection_creation_rate"
    stored = {"ips/10.0.0.1": {key: "3"}, "ips/<default>": {key: "9"}}
    assert connection_rate_of(stored, "10.0.0.1") == 3
    assert connection_rate_of(stored, "10.0.0.2") == 9
    assert connection_rate_of({}, "10.0.0.1") is None


@pytest.mark.parametrize(
    ("asked", "host"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_an_address_counts_however_it_is_spelt(asked: str, host: str) -> None:
    stored = {entity_path({"ip": asked}): {"connection_creation_rate": "3"}}
    assert connection_rate_of(stored, host) == 3
