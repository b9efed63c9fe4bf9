"""The source of a setting, and which settings may change while a broker runs."""

from __future__ import annotations

import pytest

from headwater.config.dynamic_check import StaticKeyError, check_dynamic, usable
from headwater.config.keys import BROKER_KEYS, TOPIC_KEYS
from headwater.config.layers import BrokerSettings, Given, Source
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


def test_the_same_key_in_a_larger_unit_gives_the_value() -> None:
    rows = {key.name: (value, source) for key, value, source, _ in SETTINGS.topic_rows({})}
    assert rows["retention.ms"] == (str(2 * 3600 * 1000), Source.FILE)
    finer = BrokerSettings(file={"log.retention.hours": "2"}, own={"log.retention.ms": "7"})
    rows = {key.name: (value, source) for key, value, source, _ in finer.topic_rows({})}
    assert rows["retention.ms"] == ("7", Source.BROKER)


def test_only_dynamic_keys_with_good_values_may_change() -> None:
    check_dynamic("log.retention.ms", "5")
    with pytest.raises(StaticKeyError, match="restart the broker"):
        check_dynamic("log.dirs", "/elsewhere")
    with pytest.raises(UsageError, match="number of type long"):
        check_dynamic("log.retention.ms", "soon")
    with pytest.raises(UsageError, match="no such broker key"):
        check_dynamic("zzz", "1")
    good, problems = usable({"log.retention.ms": "5", "broker.id": "9", "num.partitions": "0"})
    assert good == {"log.retention.ms": "5"}
    assert len(problems) == 2


def test_every_default_of_topics_is_dynamic() -> None:
    topic_defaults = {row.broker_name for row in TOPIC_KEYS.values() if row.broker_name}
    assert [name for name in sorted(topic_defaults) if not BROKER_KEYS[name].is_dynamic] == []


def test_kafkas_keys_without_effect_may_be_stored_while_a_broker_runs() -> None:
    stored = {"num.io.threads": "16", "sasl.kerberos.kinit.cmd": "/bin/kinit"}
    assert usable(stored) == (stored, [])
    settings = BrokerSettings(own=stored)
    assert settings.of_broker(BROKER_KEYS["num.io.threads"])[0].value == "16"
    _, problems = usable({"num.io.threads": "0", "num.replica.alter.log.dirs.threads": "1"})
    assert len(problems) == 2
    assert "at least 1" in problems[0] and "while a broker runs" in problems[1]


@pytest.mark.parametrize("name", ["log.cleaner.backoff.ms", "producer.id.expiration.ms"])
def test_keys_that_are_dynamic_in_kafka_are_so_here(name: str) -> None:
    check_dynamic(name, "1000")
