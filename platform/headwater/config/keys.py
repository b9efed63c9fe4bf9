"""All configuration keys, and the checked values of a topic or a broker.

A topic key may have a broker key (`broker_name`, Kafka's "Server Default Property"), whose value is
the default of topics without an override. Values are checked here, once; other modules read typed
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import cast

from headwater.config.row import ConfigKey, Kind, Scope, Value
from headwater.config.rows_broker import BROKER_ROWS, DEPRECATED_UNITS
from headwater.config.rows_groups import (
    CONSUMER_GROUP_ROWS,
    GROUP_KEYS,
    LIMIT_KEYS,
    check_group_together,
)
from headwater.config.rows_security import SECURITY_ROWS
from headwater.config.rows_share import SHARE_ROWS
from headwater.config.rows_topic import TOPIC_ROWS
from headwater.config.rows_without_effect import ROWS_WITHOUT_EFFECT
from headwater.errors import UsageError


def _topic_defaults() -> tuple[ConfigKey, ...]:
    """The broker keys that give topic keys their defaults, but for those in BROKER_ROWS."""
    listed = {row.name for row in BROKER_ROWS}
    return tuple(
        ConfigKey(
            row.broker_name,
            row.kind,
            row.default,
            Scope.BROKER,
            row.unit,
            f"Default of the topic key {row.name}. {row.doc}",
            row.minimum,
            row.maximum,
            row.choices,
        )
        for row in TOPIC_ROWS
        if row.broker_name and row.broker_name not in listed
    )


UNLIMITED = -1
LISTENER_PREFIX = "listener.name."
"""Of keys for one listener: `headwater.config.listener_values` reads them."""

TOPIC_KEYS: dict[str, ConfigKey] = {row.name: row for row in TOPIC_ROWS}
BROKER_KEYS: dict[str, ConfigKey] = {
    row.name: row
    for row in (
        *BROKER_ROWS,
        *CONSUMER_GROUP_ROWS,
        *SHARE_ROWS,
        *SECURITY_ROWS,
        *_topic_defaults(),
        *ROWS_WITHOUT_EFFECT,
    )
}


class Values:
    """Checked values by key, with a method for each type."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def integer(self, name: str) -> int:
        """The value of an int or long key."""
        return cast(int, self._values[name])

    def number(self, name: str) -> float:
        """The value of a double key."""
        return cast(float, self._values[name])

    def boolean(self, name: str) -> bool:
        """The value of a boolean key."""
        return cast(bool, self._values[name])

    def string(self, name: str) -> str:
        """The value of a string key; empty when unset."""
        return cast(str, self._values[name] or "")

    def strings(self, name: str) -> tuple[str, ...]:
        """The value of a list key."""
        return cast(tuple[str, ...], self._values[name])

    def is_set(self, name: str) -> bool:
        """Whether the key has a value."""
        return self._values[name] is not None

    def as_dict(self) -> dict[str, Value]:
        """All values."""
        return dict(self._values)


def topic_key(name: str) -> ConfigKey:
    """The row of a topic key. Raises UsageError for an unknown name."""
    return _known(name, TOPIC_KEYS, "topic")


def broker_key(name: str) -> ConfigKey:
    """The row of a broker key. Raises UsageError for an unknown name."""
    return _known(name, BROKER_KEYS, "broker")


def group_key(name: str) -> ConfigKey:
    """The row of a group key. Raises UsageError for an unknown name."""
    return _known(name, GROUP_KEYS, "group")


def check_group_overrides(overrides: Mapping[str, str], broker: Mapping[str, int]) -> None:
    """Check a group's overrides, by themselves and against a broker's `group_limits`. Raises
    UsageError."""
    values = {name: group_key(name).parse(text) for name, text in overrides.items()}
    check_group_together(values, broker)


def group_limits(values: Values) -> dict[str, int]:
    """The broker's defaults and bounds of group keys that are numbers, by broker key."""
    return {name: values.integer(name) for name in LIMIT_KEYS}


def check_topic_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The typed overrides of one topic. Raises UsageError at the first bad one."""
    return {name: topic_key(name).parse(text) for name, text in overrides.items()}


def check_topic_together(overrides: Mapping[str, str]) -> None:
    """Check that a topic's overrides do not contradict each other. Raises UsageError.

    For a requested change only: stored overrides count as they are. Broker defaults do not count,
    as they may differ between brokers.
    """
    values = check_topic_overrides(overrides)
    _check_order(values, "min.compaction.lag.ms", "max.compaction.lag.ms")
    if values.get("remote.storage.enable"):
        for name in ("retention.ms", "retention.bytes"):
            local = f"local.{name}"
            if values.get(name) != UNLIMITED:
                if values.get(local) == UNLIMITED and name in values:
                    raise UsageError(f"config {local}: -1 is no limit, {name} is {values[name]}")
                _check_order(values, local, name)


def _check_order(values: Mapping[str, Value], low: str, high: str) -> None:
    if low in values and high in values and cast(int, values[low]) > cast(int, values[high]):
        raise UsageError(
            f"config {low}: value {values[low]} is not valid with {high}={values[high]}; "
            f"use one that is not larger"
        )


def topic_defaults(broker: Mapping[str, str]) -> dict[str, Value]:
    """The values of a topic without overrides on a broker with these properties."""
    values: dict[str, Value] = {}
    for row in TOPIC_ROWS:
        values[row.name] = _broker_default(row, broker)
    return values


def topic_values(overrides: Mapping[str, str], broker: Mapping[str, str]) -> Values:
    """Overrides over the broker's defaults. Raises UsageError."""
    return Values({**topic_defaults(broker), **check_topic_overrides(overrides)})


def broker_values(properties: Mapping[str, str]) -> Values:
    """A broker's properties over the defaults. Raises UsageError, also for unknown keys."""
    values: dict[str, Value] = {name: row.default for name, row in BROKER_KEYS.items()}
    for name, text in properties.items():
        if not name.startswith(LISTENER_PREFIX):
            values[name] = broker_key(name).parse(text)
    for row in TOPIC_ROWS:
        if row.broker_name:
            values[row.broker_name] = _broker_default(row, properties)
    return Values(values)


def _broker_default(row: ConfigKey, broker: Mapping[str, str]) -> Value:
    """The value of the key's broker key, or of that key in a larger unit (log.retention.hours)."""
    if not row.broker_name:
        return row.default
    if row.broker_name in broker:
        return broker_key(row.broker_name).parse(broker[row.broker_name])
    for coarse, factor in DEPRECATED_UNITS.get(row.broker_name, ()):
        if coarse in broker:
            value = cast(int, broker_key(coarse).parse(broker[coarse]))
            return value if value < 0 else value * factor
    return BROKER_KEYS[row.broker_name].default


def _known(name: str, keys: Mapping[str, ConfigKey], scope: str) -> ConfigKey:
    row = keys.get(name)
    if row is not None:
        return row
    near = get_close_matches(name, keys, 1)
    hint = f"; did you mean {near[0]}?" if near else "; see conf/broker.properties and the docs"
    raise UsageError(f"config {name}: no such {scope} key{hint}")


__all__ = [
    "BROKER_KEYS",
    "GROUP_KEYS",
    "TOPIC_KEYS",
    "ConfigKey",
    "Kind",
    "Scope",
    "Value",
    "Values",
    "broker_key",
    "broker_values",
    "check_group_overrides",
    "check_topic_overrides",
    "check_topic_together",
    "group_key",
    "group_limits",
    "topic_defaults",
    "topic_key",
    "topic_values",
]
