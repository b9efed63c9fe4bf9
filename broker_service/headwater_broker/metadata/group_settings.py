"""The settings of one group: its group configs over the broker's (KIP-848, KIP-932, KIP-1240)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from headwater.config.keys import GROUP_KEYS, ConfigKey, Kind, Value, Values
from headwater.config.rows_groups import OFFSET_RESET, bound_keys
from headwater.errors import UsageError
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The configs of `kafka-configs.sh --entity-type groups`; comments have Kafka's names."""

    consumer_session_timeout_ms: int = 45_000  # consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int | None = None  # consumer.heartbeat.interval.ms
    """None: not configured; the coordinator chooses."""
    consumer_assignment_interval_ms: int = 1_000  # consumer.assignment.interval.ms
    share_session_timeout_ms: int = 45_000  # share.session.timeout.ms
    share_heartbeat_interval_ms: int | None = None  # share.heartbeat.interval.ms
    share_assignment_interval_ms: int = 1_000  # share.assignment.interval.ms
    share_record_lock_duration_ms: int = 30_000  # share.record.lock.duration.ms
    share_delivery_count_limit: int = 5  # share.delivery.count.limit
    share_partition_max_record_locks: int = 2_000  # share.partition.max.record.locks
    share_auto_offset_reset: str = "latest"  # share.auto.offset.reset
    """"latest", "earliest" or "by_duration:<ISO 8601 duration>"."""
    share_isolation_level: str = "read_uncommitted"  # share.isolation.level
    share_renew_acknowledge_enable: bool = True  # share.renew.acknowledge.enable


GroupSettingsOf = Callable[[str], GroupSettings]
"""(group id) -> its settings as they are now."""


class KnownGroupSettings:
    """The settings of groups as the metadata and the broker's own settings have them now.

    Kept by group until either changes: a heartbeat asks for them.
    """

    def __init__(
        self,
        view: MetadataCache,
        values: Callable[[], Values],
        properties: Callable[[], Mapping[str, str]],
    ) -> None:
        """`values`: the broker's settings; `properties`: those of them that were set anywhere."""
        self._view = view
        self._values = values
        self._properties = properties
        self._known: dict[str, GroupSettings] = {}
        self._default: GroupSettings | None = None
        view.on_change.append(self._metadata_changed)

    def __call__(self, group_id: str) -> GroupSettings:
        """The settings of one group."""
        known = self._known.get(group_id)
        if known is not None:
            return known
        overrides = self._view.group_configs.get(group_id)
        if overrides:
            made = self._known[group_id] = self._made(overrides)
            return made
        if self._default is None:
            self._default = self._made({})
        return self._default

    def forget(self) -> None:
        """The broker's settings changed."""
        self._known = {}
        self._default = None

    def _metadata_changed(self, change: MetadataDelta) -> None:
        if change.group_configs or change.broker_configs:
            self.forget()

    def _made(self, overrides: Mapping[str, str]) -> GroupSettings:
        broker = self._values()
        values = {name: self._value(key, overrides, broker) for name, key in GROUP_KEYS.items()}
        for kind in ("consumer", "share"):
            interval = f"{kind}.heartbeat.interval.ms"
            if interval not in overrides and f"group.{interval}" not in self._properties():
                values[interval] = None
        fields = {name.replace(".", "_"): value for name, value in values.items()}
        return GroupSettings(**fields)  # type: ignore[arg-type]  # one field per key

    @staticmethod
    def _value(key: ConfigKey, overrides: Mapping[str, str], broker: Values) -> Value:
        """An override within the broker's bounds of today; the broker's value without a good one.

        It was within the bounds of the broker that took it: Kafka clamps it here, too.
        """
        default = broker.as_dict()[key.broker_name] if key.broker_name else key.default
        if key.name not in overrides:
            return default
        try:
            value = key.parse(overrides[key.name])
        except UsageError as problem:
            logger.error("the config of a group is ignored: %s", problem)
            return default
        if key.name == "share.auto.offset.reset":
            return value if OFFSET_RESET.fullmatch(cast(str, value)) else default
        if key.kind is Kind.INT:
            low, high = bound_keys(key.name)
            return min(max(cast(int, value), broker.integer(low)), broker.integer(high))
        return value
