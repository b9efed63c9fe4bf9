"""The options of `ShareConsumer`, checked. Kafka's names with underscores, times in ms, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.client.consumer_options import ReaderOptions
from headwater.client.option_rules import (
    name_text,
    one_of,
    option,
)

AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]
ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}
"""Name -> its code in ShareFetch (KIP-1206)."""
RECORD_LIMIT = 1
ELSEWHERE = {
    "auto_offset_reset": "set share.auto.offset.reset of the group with headwater configs",
    "isolation_level": "set share.isolation.level of the group with headwater configs",
    "enable_auto_commit": "share_acknowledgement_mode says who acknowledges",
    "group_instance_id": "members of share groups are never static",
    "partition_assignment_strategy": "the coordinator assigns",
    "session_timeout_ms": "set share.session.timeout.ms of the group with headwater configs",
    "heartbeat_interval_ms": "set share.heartbeat.interval.ms of the group with headwater configs",
}
"""Options of `Consumer` that a share consumer lacks, and what takes their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerOptions(ReaderOptions):
    """What `ShareConsumer` was given. `ShareConsumer.__init__` declares the defaults."""

    group_id: str = option(name_text)
    share_acknowledgement_mode: bool = option(one_of({"implicit": False, "explicit": True}))
    """True: explicit."""
    share_acquire_mode: int = option(one_of(ACQUIRE_MODES))
