"""The broker keys of share groups and of their coordinators (KIP-932, Kafka 4.3), and those that
bound what a group config may say."""

from __future__ import annotations

from headwater.config.row import ConfigKey, Kind, Scope, Value

DEFAULT_ASSIGNOR = "simple"


def _row(
    name: str,
    default: Value,
    unit: str,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    dynamic: bool = False,
    kind: Kind = Kind.INT,
    choices: tuple[str, ...] = (),
) -> ConfigKey:
    return ConfigKey(
        name, kind, default, Scope.BROKER, unit, doc, minimum, maximum, choices, is_dynamic=dynamic
    )


_COORDINATOR = (
    _row("share.coordinator.state.topic.num.partitions", 50, "",
         "Partitions of __share_group_state.", minimum=1),
    _row("share.coordinator.state.topic.replication.factor", 3, "",
         "Replicas of __share_group_state, which is created once that many brokers live.",
         minimum=1, maximum=2**15 - 1),
    _row("share.coordinator.state.topic.min.isr", 2, "",
         "min.insync.replicas of __share_group_state, at most its replication factor.",
         minimum=1, maximum=2**15 - 1),
    _row("share.coordinator.state.topic.segment.bytes", 100 << 20, "bytes",
         "Segment size of __share_group_state.", minimum=1),
    _row("share.coordinator.snapshot.update.records.per.snapshot", 500, "records",
         "A share partition's whole state is written after so many changes of it.",
         minimum=0, maximum=500),
    _row("share.coordinator.write.timeout.ms", 5_000, "ms",
         "A change of a share partition waits so long for the replicas of __share_group_state.",
         minimum=1),
    _row("share.coordinator.state.topic.prune.interval.ms", 300_000, "ms",
         "The log of __share_group_state is pruned this often behind what is still needed.",
         minimum=1),
    _row("share.coordinator.cold.partition.snapshot.interval.ms", 300_000, "ms",
         "The state of a share partition that is idle for this time is written anew, so that the "
         "log behind it can be pruned.", minimum=1),
)  # fmt: skip

_GROUPS = (
    _row("group.share.assignors", (DEFAULT_ASSIGNOR,), "",
         "The assignor of share groups.", kind=Kind.LIST, choices=(DEFAULT_ASSIGNOR,)),
    _row("group.share.max.size", 200, "members",
         "Maximum number of members of a share group.", minimum=1, maximum=1_000),
    _row("group.share.session.timeout.ms", 45_000, "ms",
         "A member of a share group that sends no heartbeat for this time is removed.", minimum=1),
    _row("group.share.min.session.timeout.ms", 45_000, "ms",
         "Lowest share.session.timeout.ms that a group may have.", minimum=1),
    _row("group.share.max.session.timeout.ms", 60_000, "ms",
         "Highest share.session.timeout.ms that a group may have.", minimum=1),
    _row("group.share.heartbeat.interval.ms", 5_000, "ms",
         "Heartbeat interval of members of share groups, unless the group has its own.", minimum=1),
    _row("group.share.min.heartbeat.interval.ms", 5_000, "ms",
         "Lowest share.heartbeat.interval.ms that a group may have.", minimum=1),
    _row("group.share.max.heartbeat.interval.ms", 15_000, "ms",
         "Highest share.heartbeat.interval.ms that a group may have.", minimum=1),
    _row("group.share.assignment.interval.ms", 1_000, "ms",
         "Least time between two assignments of a share group.", minimum=0, dynamic=True),
    _row("group.share.min.assignment.interval.ms", 0, "ms",
         "Lowest share.assignment.interval.ms that a group may have.", minimum=0),
    _row("group.share.max.assignment.interval.ms", 15_000, "ms",
         "Highest share.assignment.interval.ms that a group may have.", minimum=0),
    _row("group.share.initialize.retry.interval.ms", 30_000, "ms",
         "Share partitions whose state could not be initialized are tried again after this time.",
         minimum=1),
)  # fmt: skip

_PARTITIONS = (
    _row("group.share.delivery.count.limit", 5, "deliveries",
         "Deliveries of a record to a share group, after which it is archived.",
         minimum=2, maximum=10),
    _row("group.share.min.delivery.count.limit", 2, "deliveries",
         "Lowest share.delivery.count.limit that a group may have.", minimum=2, maximum=5),
    _row("group.share.max.delivery.count.limit", 10, "deliveries",
         "Highest share.delivery.count.limit that a group may have.", minimum=5, maximum=25),
    _row("group.share.record.lock.duration.ms", 30_000, "ms",
         "How long a member of a share group has a record before others may get it.",
         minimum=1_000, maximum=3_600_000),
    _row("group.share.min.record.lock.duration.ms", 15_000, "ms",
         "Lowest share.record.lock.duration.ms that a group may have.",
         minimum=1_000, maximum=30_000),
    _row("group.share.max.record.lock.duration.ms", 60_000, "ms",
         "Highest share.record.lock.duration.ms that a group may have.",
         minimum=30_000, maximum=3_600_000),
    _row("group.share.partition.max.record.locks", 2_000, "records",
         "Records of a partition that members of a share group may have at once.",
         minimum=100, maximum=10_000),
    _row("group.share.min.partition.max.record.locks", 100, "records",
         "Lowest share.partition.max.record.locks that a group may have.",
         minimum=100, maximum=2_000),
    _row("group.share.max.partition.max.record.locks", 4_000, "records",
         "Highest share.partition.max.record.locks that a group may have.",
         minimum=2_000, maximum=10_000),
    _row("group.share.max.share.sessions", 2_000, "sessions",
         "Maximum number of share sessions of a broker.", minimum=1),
)  # fmt: skip

SHARE_ROWS = (*_COORDINATOR, *_GROUPS, *_PARTITIONS)
