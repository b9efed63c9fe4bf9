"""The collaborators of a group shard: topics of the cluster, settings, background assignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.group.consumer.patterns import SubmitRegexes
from headwater_broker.coordinator.group.consumer.subscriptions import Topics
from headwater_broker.coordinator.group.consumer.target import Submit
from headwater_broker.coordinator.group.table import default_settings
from headwater_broker.metadata.group_settings import GroupSettingsOf

HEARTBEAT_INTERVAL_MS = 1_000


def one_second() -> int:
    """The interval of heartbeats in a broker of few members."""
    return HEARTBEAT_INTERVAL_MS


@dataclass(frozen=True, slots=True)
class Collaborators:
    """All of it may be called on the broker's loop only."""

    topics: Topics
    meters: ConsumerGroupMeters
    settings_of: GroupSettingsOf = default_settings
    submit: Submit | None = None
    """Has a large target computed beside the loop; None: nothing is."""
    submit_regexes: SubmitRegexes | None = None
    """Has patterns resolved beside the loop; None: they stay unresolved."""
    settled_interval_ms: Callable[[], int] = one_second
    """How often members of consumer groups heartbeat while nothing changes."""
