"""The broker's configuration: its sources, and refusals in one line with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater_broker.app.config import from_properties, load

BASE = {"broker.id": "3", "log.dirs": "/data/a,/data/b"}


def test_defaults_and_values() -> None:
    config = from_properties({**BASE, "cluster.id": "abc", "num.partitions": "4"})
    assert (config.broker_id, config.cluster_id) == (3, "abc")
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config.listeners == config.advertised
    assert config.listeners[0].port == 9092
    assert config.values.integer("num.partitions") == 4
    assert config.status is None
    assert config.tables_uri == "file:///data/a/tables"


def test_a_file_and_overrides_over_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# a comment\n\nbroker.id = 1\nlog.dir=/tmp/x\nlisteners=PLAINTEXT://h:1\n")
    config = load(str(path), ["broker.id=2", "listeners=PLAINTEXT://0.0.0.0:5",
                              "advertised.listeners=PLAINTEXT://me:5"])  # fmt: skip
    assert config.broker_id == 2
    assert (config.listeners[0].host, config.advertised[0].host) == ("0.0.0.0", "me")


def test_storage_options_are_read_by_prefix() -> None:
    config = from_properties({**BASE, "headwater.tables.option.aws_region": "eu"})
    assert config.table_options == (("aws_region", "eu"),)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"broker.id": "-1"}, "broker.id"),
        ({"broker.id": "x"}, "broker.id"),
        ({"no.such.key": "1"}, "no.such.key"),
        ({"listeners": "nonsense"}, "listeners"),
        ({"listeners": "PLAINTEXT://h:99999"}, "listeners"),
        ({"listeners": "OTHER://h:1"}, "listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners"),
        ({"advertised.listeners": "OTHER://h:1"}, "advertised.listeners"),
        ({"control.listener": "h"}, "control.listener"),
    ],
)
def test_bad_values_name_the_key(change: dict[str, str], part: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_properties({**BASE, **change})
    assert part in str(caught.value)


def test_a_missing_file_and_a_bad_line_are_told() -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load("/no/such/file", [])
    with pytest.raises(UsageError, match="key=value"):
        load(None, ["broker.id"])
