"""Keys of consumer groups (KIP-848): those of brokers, and those that one group may override.

The keys of single groups are set with `kafka-configs.sh --entity-type groups`, or by
`headwater configs alter group NAME`. The broker's own value is the default, and its min and max
keys bound what a group may set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from headwater.config.row import INT_MAX, ConfigKey, Kind, Scope, Value
from headwater.errors import UsageError

OFFSET_RESET = re.compile(
    r"latest|earliest|by_duration:P(?!$)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
    re.IGNORECASE,
)
"""Values of share.auto.offset.reset."""


def _broker(
    name: str, default: int, doc: str, minimum: int = 1, *, unit: str = "ms", dynamic: bool = False
) -> ConfigKey:
    return ConfigKey(
        name, Kind.INT, default, Scope.BROKER, unit, doc, minimum, INT_MAX, is_dynamic=dynamic
    )


CONSUMER_GROUP_ROWS = (
    _broker("group.consumer.session.timeout.ms", 45_000,
            "A member of a consumer group that sends no heartbeat for this long is removed."),
    _broker("group.consumer.min.session.timeout.ms", 45_000,
            "Minimum of the group key consumer.session.timeout.ms."),
    _broker("group.consumer.max.session.timeout.ms", 60_000,
            "Maximum of the group key consumer.session.timeout.ms."),
    _broker("group.consumer.heartbeat.interval.ms", 5_000,
            "Interval of a member's heartbeats. Unless it is set, the coordinator answers 500 ms "
            "while a group settles, and from 1 s (up to 5,000 members per broker) to 5 s after."),
    _broker("group.consumer.min.heartbeat.interval.ms", 5_000,
            "Minimum of the group key consumer.heartbeat.interval.ms."),
    _broker("group.consumer.max.heartbeat.interval.ms", 15_000,
            "Maximum of the group key consumer.heartbeat.interval.ms."),
    _broker("group.consumer.assignment.interval.ms", 1_000,
            "Shortest time between two target assignments of a group.", 0, dynamic=True),
    _broker("group.consumer.min.assignment.interval.ms", 0,
            "Minimum of the group key consumer.assignment.interval.ms.", 0),
    _broker("group.consumer.max.assignment.interval.ms", 15_000,
            "Maximum of the group key consumer.assignment.interval.ms.", 0),
    _broker("group.consumer.max.size", INT_MAX,
            "Maximum number of members of a consumer group.", unit="members"),
    _broker("group.consumer.regex.refresh.interval.ms", 600_000,
            "A group's subscriptions by pattern are resolved anew after this, for new topics and "
            "changed rights.", 10_000),
    ConfigKey("group.consumer.assignors", Kind.LIST, ("uniform", "range"), Scope.BROKER, "",
              "Server-side assignors of consumer groups; the first is the default.",
              choices=("uniform", "range"), is_dynamic=False),
    ConfigKey("group.consumer.migration.policy", Kind.STRING, "bidirectional", Scope.BROKER, "",
              "Whether a group passes from the classic to the consumer protocol when its first "
              "modern member joins (upgrade), back when the last leaves (downgrade), or both.",
              choices=("disabled", "upgrade", "downgrade", "bidirectional"), is_dynamic=False),
)  # fmt: skip


def _group(
    name: str,
    kind: Kind,
    default: Value,
    doc: str,
    minimum: int | None = None,
    *,
    unit: str = "",
    choices: tuple[str, ...] = (),
    has_broker_key: bool = True,
) -> ConfigKey:
    return ConfigKey(
        name, kind, default, Scope.GROUP, unit, doc, minimum, None, choices,
        f"group.{name}" if has_broker_key else "",
    )  # fmt: skip


GROUP_ROWS = (
    _group("consumer.session.timeout.ms", Kind.INT, 45_000,
           "A member that sends no heartbeat for this long is removed.", 1, unit="ms"),
    _group("consumer.heartbeat.interval.ms", Kind.INT, 5_000,
           "Interval of the members' heartbeats.", 1, unit="ms"),
    _group("consumer.assignment.interval.ms", Kind.INT, 1_000,
           "Shortest time between two target assignments.", 0, unit="ms"),
    _group("share.session.timeout.ms", Kind.INT, 45_000,
           "A member of a share group that sends no heartbeat for this long is removed.", 1,
           unit="ms"),
    _group("share.heartbeat.interval.ms", Kind.INT, 5_000,
           "Interval of the heartbeats of a share group's members.", 1, unit="ms"),
    _group("share.assignment.interval.ms", Kind.INT, 1_000,
           "Shortest time between two assignments of a share group.", 0, unit="ms"),
    _group("share.record.lock.duration.ms", Kind.INT, 30_000,
           "A record that is not acknowledged for this long is delivered again.", 1_000, unit="ms"),
    _group("share.delivery.count.limit", Kind.INT, 5,
           "How often a record is delivered at most.", 2),
    _group("share.partition.max.record.locks", Kind.INT, 2_000,
           "How many records of a partition may be in delivery.", 100, unit="records"),
    _group("share.auto.offset.reset", Kind.STRING, "latest",
           "Where a share group starts: latest, earliest, or by_duration:<ISO 8601 duration> "
           "before now.", has_broker_key=False),
    _group("share.isolation.level", Kind.STRING, "read_uncommitted",
           "read_committed: records of open or aborted transactions are not delivered.",
           choices=("read_uncommitted", "read_committed"), has_broker_key=False),
    _group("share.renew.acknowledge.enable", Kind.BOOLEAN, True,
           "Whether consumers may renew the lock of a record.", has_broker_key=False),
)  # fmt: skip

GROUP_KEYS: dict[str, ConfigKey] = {row.name: row for row in GROUP_ROWS}

_BOUNDED = tuple(row.name for row in GROUP_ROWS if row.kind is Kind.INT)
"""Keys with group.*.min.* and group.*.max.* on the broker."""


def bound_keys(name: str) -> tuple[str, str]:
    """The broker keys with the smallest and largest value of a group key that is a number."""
    kind, _, rest = name.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


LIMIT_KEYS = tuple(
    sorted({key for name in _BOUNDED for key in (f"group.{name}", *bound_keys(name))})
)
"""The broker keys that default and bound the keys of groups."""


def check_group_together(overrides: Mapping[str, Value], broker: Mapping[str, int]) -> None:
    """Check a group's overrides against the broker's `LIMIT_KEYS` and each other. Raises
    UsageError."""
    for name in _BOUNDED:
        value = overrides.get(name)
        if value is None:
            continue
        low, high = bound_keys(name)
        if cast(int, value) < broker[low]:
            raise UsageError(f"config {name}: {value} is less than {low}={broker[low]}")
        if cast(int, value) > broker[high]:
            raise UsageError(f"config {name}: {value} is more than {high}={broker[high]}")
    for kind in ("consumer", "share"):
        session, beat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        timeout = cast(int, overrides.get(session) or broker[f"group.{session}"])
        interval = cast(int, overrides.get(beat) or broker[f"group.{beat}"])
        if (session in overrides or beat in overrides) and timeout <= interval:
            raise UsageError(f"config {session}: {timeout} must be more than {beat}={interval}")
    reset = cast(str, overrides.get("share.auto.offset.reset", "latest"))
    if not OFFSET_RESET.fullmatch(reset):
        raise UsageError(
            f"config share.auto.offset.reset: value {reset!r} is not valid; use latest, earliest "
            "or by_duration:<ISO 8601 duration>, as in by_duration:PT6H"
        )
