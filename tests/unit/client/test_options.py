"""Options are checked at construction, before anything is sent."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater import Admin, Consumer, OptionError, Producer, ShareConsumer
from headwater.client.addresses import parse_bootstrap
from headwater.client.admin.options import AdminOptions
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.option_rules import checked
from headwater.client.producer_options import ProducerOptions
from headwater.client.share_options import ShareConsumerOptions
from headwater.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
NOWHERE = "127.0.0.1:1"
CLASSES = [
    (Producer, ProducerOptions),
    (Consumer, ConsumerOptions),
    (ShareConsumer, ShareConsumerOptions),
    (Admin, AdminOptions),
]
REQUIRED = {ShareConsumer: {"group_id": "g"}}
"""Options without a default."""


@pytest.mark.parametrize(("client", "options"), CLASSES)
def test_each_option_is_a_typed_keyword_of_the_signature(client: Any, options: Any) -> None:
    parameters = inspect.signature(client.__init__).parameters
    named = {
        name: p
        for name, p in parameters.items()
        if name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    assert {*named, "credentials"} == {f.name for f in dataclasses.fields(options)}
    for name, parameter in named.items():
        assert parameter.annotation not in (inspect.Parameter.empty, "Any"), name
        is_given = name in REQUIRED.get(client, ())
        assert (parameter.default is inspect.Parameter.empty) is is_given, name


@pytest.mark.parametrize(("client", "options"), CLASSES)
def test_the_defaults_pass_their_own_checks(client: Any, options: Any) -> None:
    given = defaults(client)
    checked(client.__name__, options, given, {})


def defaults(client: Any) -> dict[str, Any]:
    parameters = inspect.signature(client.__init__).parameters
    return {**{name: p.default for name, p in parameters.items()}, **REQUIRED.get(client, {})}


@pytest.mark.parametrize(
    ("client", "wrong", "nearest"),
    [
        (Producer, "linger", "linger_ms"),
        (Producer, "linger.ms", "linger_ms"),
        (Producer, "max_in_flight", "max_in_flight_requests_per_connection"),
        (Producer, "bootstrap.servers", "bootstrap_servers"),
        (Consumer, "groupid", "group_id"),
        (Consumer, "auto.offset.reset", "auto_offset_reset"),
        (Admin, "request_timeout", "request_timeout_ms"),
        (ShareConsumer, "share_acquire", "share_acquire_mode"),
    ],
)
def test_an_unknown_option_names_the_nearest(client: Any, wrong: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=f"{client.__name__} has no option '{wrong}'.*'{nearest}'"):
        client(bootstrap_servers=NOWHERE, **REQUIRED.get(client, {}), **{wrong: 5})


def test_an_option_like_no_other_has_no_suggestion() -> None:
    with pytest.raises(OptionError, match=r"Producer has no option 'xyzzy'$"):
        Producer(NOWHERE, xyzzy=1)  # type: ignore[arg-type]


WRONG_TYPES: list[tuple[Any, str, Any]] = [
    (Consumer, "group_id", 3),
    (Consumer, "enable_auto_commit", "false"),
    (Consumer, "max_poll_records", "500"),
    (Consumer, "check_crcs", 1),
    (Consumer, "on_error", "log"),
    (Consumer, "client_rack", None),
    (Producer, "linger_ms", "5"),
    (Producer, "batch_size", 1.5),
    (Producer, "batch_size", True),
    (Producer, "enable_idempotence", "true"),
    (Producer, "partitioner", 5),
    (Producer, "client_id", b"app"),
    (Admin, "on_wait", 1),
    (Admin, "request_timeout_ms", None),
]


@pytest.mark.parametrize(("client", "name", "value"), WRONG_TYPES)
def test_a_value_of_a_wrong_type_is_named(client: Any, name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{name} is "):
        client(bootstrap_servers=NOWHERE, **{name: value})


WRONG_VALUES: list[tuple[Any, str, Any]] = [
    (Consumer, "group_id", ""),
    (Consumer, "max_poll_records", 0),
    (Consumer, "auto_offset_reset", "begin"),
    (Consumer, "isolation_level", "serializable"),
    (Consumer, "partition_assignment_strategy", "stick"),
    (Producer, "partitioner", "random"),
    (Consumer, "partition_assignment_strategy", []),
    (Consumer, "auto_commit_interval_ms", -1),
    (Consumer, "default_api_timeout_ms", -1),
    (Consumer, "consumer_timeout_ms", -1),
    (Consumer, "request_timeout_ms", 0),
    (Producer, "acks", "quorum"),
    (Producer, "acks", True),
    (Producer, "acks", 2),
    (Producer, "compression_type", "brotli"),
    (Producer, "max_in_flight_requests_per_connection", 0),
    (Producer, "linger_ms", -1),
    (Producer, "linger_ms", float("nan")),
    (Producer, "max_block_ms", -1),
    (Producer, "buffer_memory", 0),
    (Producer, "request_timeout_ms", -1),
    (Admin, "default_api_timeout_ms", 0),
]


@pytest.mark.parametrize(("client", "name", "value"), WRONG_VALUES)
def test_a_wrong_value_is_named(client: Any, name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        client(bootstrap_servers=NOWHERE, **{name: value})


@pytest.mark.parametrize(
    ("client", "options", "message"),
    [
        (Producer, {"enable_idempotence": True, "acks": 1}, "enable_idempotence"),
        (Producer, {"compression_type": "gzip", "compression_level": 12}, "levels -1 to 9"),
        (Producer, {"compression_level": 3}, "no levels"),
        (Consumer, {"group_instance_id": "a"}, "needs a group_id"),
        (Consumer, {"group_id": "g", "heartbeat_interval_ms": 45_000}, "less than"),
        (
            Consumer,
            {"group_id": "g", "group_protocol": "consumer", "session_timeout_ms": 6_000},
            "session_timeout_ms is for .* set consumer.session.timeout.ms of the group",
        ),
        (
            Consumer,
            {
                "group_id": "g",
                "group_protocol": "consumer",
                "partition_assignment_strategy": "sticky",
            },
            "with 'consumer' give group_remote_assignor$",
        ),
    ],
)
def test_options_that_exclude_each_other(
    client: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        client(bootstrap_servers=NOWHERE, **options)


def test_a_dict_is_no_bootstrap_server_and_no_topic() -> None:
    with pytest.raises(OptionError, match="bootstrap_servers is a dict: give options as keywords"):
        Producer({"bootstrap.servers": NOWHERE})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="of type dict"):
        Consumer({"bootstrap.servers": NOWHERE})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="bootstrap_servers is a keyword"):
        Consumer("127.0.0.1:9092")


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ("http://kafka:9092", "begins with http://.*write 'kafka:9092'"),
        ("PLAINTEXT://kafka:9092/x", "write 'kafka:9092'"),
        ("kafka:port", "is not host:port"),
        ("kafka/x:9092", "is not host:port"),
        (" , ", "bootstrap_servers is empty"),
        (["a:1", 2], "bootstrap server 2 is a int"),
        (9092, "of type int"),
        (b"a:1", "of type bytes"),
    ],
)
def test_bootstrap_servers_that_are_none(servers: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_bootstrap(servers)


def test_bootstrap_servers_in_their_forms() -> None:
    assert parse_bootstrap("a:1, b") == [("a", 1), ("b", 9092)]
    assert parse_bootstrap(("[::1]:7", "[fe80::1]")) == [("::1", 7), ("fe80::1", 9092)]


def test_numpys_integers_are_integers() -> None:
    given = {**defaults(Producer), "batch_size": np.int64(4096)}
    options = checked("Producer", ProducerOptions, given, {})
    assert type(options.batch_size) is int and options.batch_size == 4096


@pytest.mark.parametrize(("client", "options"), CLASSES)
def test_each_option_and_its_default_are_documented(client: Any, options: Any) -> None:
    page = (ROOT / "docs" / "clients.md").read_text()
    names = {f.name for f in dataclasses.fields(options)} - {"bootstrap_servers", "credentials"}
    assert {name for name in names if f"`{name}`" not in page} == set()
    rows = dict(re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", page, re.MULTILINE))
    given = defaults(client)
    for cells, values in rows.items():
        listed = [name for name in re.findall(r"`(\w+)`", cells) if name in names]
        shown = [text.strip("*` ") for text in values.split(", ")]
        if len(shown) != len(listed):
            continue
        for name, text in zip(listed, shown, strict=True):
            if text.isdigit() and client.__name__ in section(page, cells):
                assert int(text) == given[name], (name, text)


def section(page: str, row: str) -> str:
    """The head of the table that the row is in."""
    return page[: page.index(row)].rpartition("|---|---|---|")[0].rpartition("\n\n")[2]
