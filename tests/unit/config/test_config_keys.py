"""Config keys: defaults are Kafka's, bad input names key, value and remedy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headwater.config.docs import sample_properties
from headwater.config.keys import (
    BROKER_KEYS,
    TOPIC_KEYS,
    broker_values,
    check_topic_together,
    topic_key,
    topic_values,
)
from headwater.config.load import parse_properties
from headwater.errors import UsageError
from headwater_broker.log.log_config import LogConfig

ROOT = Path(__file__).resolve().parents[3]


def test_the_sample_is_what_the_keys_say() -> None:
    path = ROOT / "conf" / "broker.properties"
    assert path.read_text() == sample_properties(), (
        "run: python -m headwater.config.docs > conf/broker.properties"
    )
    uncommented = [
        line[1:]
        for line in path.read_text().splitlines()
        if line.startswith("#") and "=" in line and line[1:].split("=")[0] in BROKER_KEYS
    ]
    given = parse_properties("\n".join(line for line in uncommented if line.split("=", 1)[1]))
    assert broker_values(given).as_dict().keys() == BROKER_KEYS.keys()


def test_broker_keys_are_topic_defaults_in_any_unit() -> None:
    assert topic_values({}, {}).integer("retention.ms") == 604_800_000
    assert topic_values({}, {"log.retention.hours": "1"}).integer("retention.ms") == 3_600_000
    both = {"log.retention.hours": "1", "log.retention.minutes": "2"}
    assert topic_values({}, both).integer("retention.ms") == 120_000
    both["log.retention.ms"] = "-1"
    assert topic_values({}, both).integer("retention.ms") == -1
    assert topic_values({"retention.ms": "5"}, both).integer("retention.ms") == 5
    assert broker_values(both).integer("log.retention.ms") == -1
    assert broker_values({"min.insync.replicas": "2"}).integer("min.insync.replicas") == 2


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("retention.ms", "week", "number of type long"),
        ("retention.ms", "-2", "at least -1"),
        ("segment.bytes", str(2**31), "at most"),
        ("cleanup.policy", "remove", "delete or compact"),
        ("compression.gzip.level", "0", "another value than 0"),
        ("compression.lz4.level", "18", "at most 17"),
        ("preallocate", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "nan", "at least 0"),
    ],
)
def test_bad_values(name: str, value: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        topic_values({name: value}, {})
    text = str(caught.value)
    assert name in text and repr(value) in text and remedy in text


def test_every_setting_of_a_log_is_read_by_something() -> None:
    folder = ROOT / "broker_service" / "headwater_broker"
    texts = [p.read_text() for p in folder.rglob("*.py") if p != folder / "log" / "config.py"]
    code = "\n".join(texts)
    names = [field.name for field in dataclasses.fields(LogConfig)]
    by_way_of = {
        name: f"effective_{name}" for name in names if hasattr(LogConfig, f"effective_{name}")
    }
    assert [n for n in names if f".{by_way_of.get(n, n)}" not in code] == []


TIERED = {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms"),
        ({"local.retention.ms": "6", "retention.ms": "5", **TIERED}, "local.retention.ms"),
        ({"local.retention.bytes": "6", "retention.bytes": "5", **TIERED}, "local.retention.bytes"),
        ({"local.retention.ms": "-1", "retention.ms": "5", **TIERED}, "local.retention.ms"),
    ],
)
def test_what_a_topic_may_not_say_at_once(overrides: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        check_topic_together(overrides)
    topic_values(overrides, {})  # what is stored already still counts


@pytest.mark.parametrize(
    "overrides",
    [
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
        {"local.retention.ms": "5", "retention.ms": "5", **TIERED},
        {"local.retention.ms": "-2", "retention.ms": "5", **TIERED},
        {"local.retention.ms": "6", "retention.ms": "-1", **TIERED},
        {"local.retention.ms": "-1", **TIERED},
        {"local.retention.ms": "6", "retention.ms": "5"},
    ],
)
def test_what_a_topic_may_say_at_once(overrides: dict[str, str]) -> None:
    check_topic_together(overrides)


@pytest.mark.parametrize("text", ["1_000", "1 000", "\u0661\u0662", "0x10", "", "1.5"])
def test_numbers_are_written_as_java_reads_them(text: str) -> None:
    with pytest.raises(UsageError, match="use a number of type long"):
        topic_values({"retention.ms": text}, {})


@pytest.mark.parametrize("text", ["1_0e-1", "\u0661"])
def test_fractions_too(text: str) -> None:
    with pytest.raises(UsageError, match="use a number of type double"):
        topic_values({"min.cleanable.dirty.ratio": text}, {})
    assert (
        topic_values({"min.cleanable.dirty.ratio": "5e-1"}, {}).number("min.cleanable.dirty.ratio")
        == 0.5
    )


def test_unknown_keys_name_a_near_one() -> None:
    with pytest.raises(UsageError, match=r"retention\.ms"):
        topic_values({"retention.msec": "1"}, {})
    with pytest.raises(UsageError, match="no such broker key"):
        broker_values({"zzz": "1"})


def test_rows_are_in_order() -> None:
    for row in (*TOPIC_KEYS.values(), *BROKER_KEYS.values()):
        assert row.doc.endswith(".")
        if row.default is not None and row.default != "":
            text = row.render(row.default)
            if text:
                assert row.parse(text) == row.default, row.name
        assert not row.broker_name or row.broker_name in BROKER_KEYS


def test_properties_files() -> None:
    text = "# c\n! c\na = 1\nb=x\\\n  y\nc=d=e\nlist=\n"
    assert parse_properties(text) == {"a": "1", "b": "xy", "c": "d=e", "list": ""}
    for bad in ("nothing", "=x", "a=1\na=2"):
        with pytest.raises(UsageError):
            parse_properties(bad)


def test_of_a_long_value_that_is_refused_the_beginning_is_told() -> None:
    """The reply of an old version could not carry all of it."""
    with pytest.raises(UsageError) as refused:
        topic_key("retention.ms").parse("x" * 32_767)
    assert "'xxx" in str(refused.value) and len(str(refused.value)) < 400


def test_an_empty_policy_keeps_everything() -> None:
    assert TOPIC_KEYS["cleanup.policy"].parse("") == ()
