"""A broker's settings by their source: its file, all brokers, this broker (KIP-226)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from headwater.config.keys import BROKER_KEYS, TOPIC_KEYS, ConfigKey, topic_defaults
from headwater.config.rows_broker import DEPRECATED_UNITS

CLUSTER_WIDE = ""
"""The resource name whose settings apply to every broker."""


class Source(IntEnum):
    """The source of a value, with DescribeConfigs' numbers."""

    TOPIC = 1
    BROKER = 2
    CLUSTER_WIDE = 3
    FILE = 4
    DEFAULT = 5
    GROUP = 8


class Given(NamedTuple):
    """A value with its source; `name` may be another key, from which this one has its default."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Values as text by key: of the broker's file, set for all brokers, set for this broker."""

    file: Mapping[str, str] = field(default_factory=dict)
    cluster_wide: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)

    def merged(self) -> dict[str, str]:
        """The value that counts for each key: the most specific one."""
        return {**self.file, **self.cluster_wide, **self.own}

    def of_broker(self, key: ConfigKey) -> list[Given]:
        """All values of a broker key: the one that counts first, its default last."""
        names = (key.name, *(name for name, _ in DEPRECATED_UNITS.get(key.name, ())))
        rows = [row for name in names for row in self._given(name)]
        return [*rows, Given(key.name, key.render(key.default), Source.DEFAULT)]

    def of_topic(self, key: ConfigKey, overrides: Mapping[str, str]) -> list[Given]:
        """All values of a topic key: the one that counts first, its default last."""
        rows: list[Given] = []
        if key.name in overrides:
            rows.append(Given(key.name, overrides[key.name], Source.TOPIC))
        if key.broker_name:
            return [*rows, *self.of_broker(BROKER_KEYS[key.broker_name])]
        return [*rows, Given(key.name, key.render(key.default), Source.DEFAULT)]

    def of_group(self, key: ConfigKey, overrides: Mapping[str, str]) -> list[Given]:
        """All values of a group key: the one that counts first, its default last."""
        rows: list[Given] = []
        if key.name in overrides:
            rows.append(Given(key.name, overrides[key.name], Source.GROUP))
        if key.broker_name:
            return [*rows, *self.of_broker(BROKER_KEYS[key.broker_name])]
        return [*rows, Given(key.name, key.render(key.default), Source.DEFAULT)]

    def topic_rows(
        self, overrides: Mapping[str, str]
    ) -> Iterator[tuple[ConfigKey, str, Source, list[Given]]]:
        """(key, value that counts, its source, all values) of every topic key."""
        defaults = topic_defaults(self.merged())
        for name, key in sorted(TOPIC_KEYS.items()):
            given = self.of_topic(key, overrides)
            is_set = given[0].source is Source.TOPIC
            # A default may be set in a larger unit: hours are shown as milliseconds.
            value = given[0].value if is_set else key.render(defaults[name])
            yield key, value, given[0].source, given

    def _given(self, name: str) -> Iterator[Given]:
        layers = (
            (self.own, Source.BROKER),
            (self.cluster_wide, Source.CLUSTER_WIDE),
            (self.file, Source.FILE),
        )
        for layer, source in layers:
            if name in layer:
                yield Given(name, layer[name], source)
