"""Where a setting comes from, and which may change while a broker runs."""

from __future__ import annotations

import pytest

from headwater.config.keys import BROKER_KEYS, TOPIC_KEYS
from headwater.config.layers import (
    BrokerSettings,
    Given,
    Source,
    StaticKeyError,
    check_dynamic,
    usable,
)
from headwater.errors import UsageError

SETTINGS = BrokerSettings(
    file={"min.insync.replicas": "1", "log.retention.hours": "2", "num.partitions": "4"},
    cluster_wide={"min.insync.replicas": "2", "num.partitions": "5"},
    own={"min.insync.replicas": "3"},
)


def test_the_nearest_layer_counts() -> None:
    merged = SETTINGS.merged()
    assert merged["min.insync.replicas"] == "3"
    assert merged["num.partitions"] == "5"
    assert merged["log.retention.hours"] == "2"


def test_a_topic_key_tells_every_value_given_for_it() -> None:
    key = TOPIC_KEYS["min.insync.replicas"]
    name = "min.insync.replicas"
    below = [
        Given(name, "3", Source.BROKER),
        Given(name, "2", Source.CLUSTER_WIDE),
        Given(name, "1", Source.FILE),
        Given(name, "1", Source.DEFAULT),
    ]
    assert SETTINGS.of_topic(key, {}) == below
    assert SETTINGS.of_topic(key, {name: "9"}) == [Given(name, "9", Source.TOPIC), *below]
    rows = {key.name: (value, source) for key, value, source, _ in SETTINGS.topic_rows({})}
    assert rows[name] == ("3", Source.BROKER)
    assert rows["segment.bytes"] == (str(1 << 30), Source.DEFAULT)


def test_a_coarser_twin_gives_the_value_in_the_keys_own_unit() -> None:
    rows = {key.name: (value, source) for key, value, source, _ in SETTINGS.topic_rows({})}
    assert rows["retention.ms"] == (str(2 * 3600 * 1000), Source.FILE)
    finer = BrokerSettings(file={"log.retention.hours": "2"}, own={"log.retention.ms": "7"})
    rows = {key.name: (value, source) for key, value, source, _ in finer.topic_rows({})}
    assert rows["retention.ms"] == ("7", Source.BROKER)


def test_only_dynamic_keys_with_good_values_may_change() -> None:
    check_dynamic("log.retention.ms", "5")
    with pytest.raises(StaticKeyError, match="start the broker anew"):
        check_dynamic("log.dirs", "/elsewhere")
    with pytest.raises(UsageError, match="number of type long"):
        check_dynamic("log.retention.ms", "soon")
    with pytest.raises(UsageError, match="no such broker key"):
        check_dynamic("zzz", "1")
    good, problems = usable({"log.retention.ms": "5", "broker.id": "9", "num.partitions": "0"})
    assert good == {"log.retention.ms": "5"}
    assert len(problems) == 2


def test_every_default_of_topics_is_dynamic() -> None:
    twins = {row.broker_name for row in TOPIC_KEYS.values() if row.broker_name}
    assert [name for name in sorted(twins) if not BROKER_KEYS[name].is_dynamic] == []
