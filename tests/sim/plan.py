"""The plan of a seed: topics, load, kinds of faults and how often they occur.

Each seed uses only a few kinds of faults, so that some worlds see one fault again and again, and
others a mixture (swarm testing).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from random import Random

from headwater.client.core.assignors import ASSIGNORS

KINDS = (
    "kill",
    "kill_at_event",
    "kill_at_access",
    "power",
    "stall",
    "isolate",
    "split",
    "cut_store",
    "slow",
    "loss",
    "expire",
    "clock",
    "wipe",
    "swap",
    "lie",
    "stop",
)
ALWAYS_WEIGHT = 0.5
"""The weight of kills, which occur in every seed."""
FOLDERS_CHANCE = 0.2
"""The share of seeds with failing data folders."""

ADMIN_CHANCE = 0.3
"""The share of seeds with an admin client."""
TRANSACTIONS_CHANCE = 0.4
"""The share of seeds with transactional clients."""
QUERIES_CHANCE = 0.3
"""The share of Spark queries in the others."""
LONE_CHANCE = 0.25
"""The share of worlds without followers (`leave_alone`), of those with transactional clients and
without an admin."""
GROUPS_CHANCE = 0.5
"""The share of seeds with a consumer group, of those without admin and transactions."""
SHARES_CHANCE = 0.5
"""The share of seeds with a share group, of those without admin, transactions and group."""
REPLICAS = 3
MOVED = "moved"
"""The admin's topic: its two replicas move between three brokers, and it grows."""
CONFIG = "max.message.bytes"
"""The config of that topic that the admin sets."""
TRANSACTED = "transacted"
"""The topic of the transactional producers."""
COPIED = "copied"
"""The topic of the copier, which reads the first partition of the other."""
TRANSACTION_PROPERTIES = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}
LONE = "lone"
"""The kind of worlds whose coordinators have no followers, for `plan_of`."""
LONE_PROPERTIES = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "min.insync.replicas": "1",
}
DESTRUCTIVE = frozenset({"power", "wipe", "lie"})
"""Faults that destroy data: no other replica of a log without followers has it."""

GROUPED = "grouped"
"""The topic of the consumer group."""
SESSION_MS = 8_000
GROUP_PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "500",
}
GROUP_KINDS = ("consumer", "classic", "share")

SHARED = "shared"
"""The topic of the share group."""
LOCK_MS = 2_000
DELIVERIES_MAX = 4
SHARE_PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": str(SESSION_MS),
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.initialize.retry.interval.ms": "2000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": str(DELIVERIES_MAX),
}

EPOCH_TIMEOUT_MS = 4_000
EPOCH_MAX_MS = 9_000
EPOCH_PROPERTIES = {
    "epoch.timeout.ms": str(EPOCH_TIMEOUT_MS),
    "epoch.max.ms": str(EPOCH_MAX_MS),
}


_OF_ANY_WORLD = (
    "chaos_s", "fault_pause_s", "produce_pause_s", "down_s", "supervised", "faults",
    "topic_configs",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Plan:
    """The plan of one world."""

    chaos_s: float = 20.0
    """Virtual seconds of work under faults."""
    fault_pause_s: float = 1.5
    """Average time from one fault to the next."""
    produce_pause_s: float = 0.15
    down_s: tuple[float, float] = (0.1, 6.0)
    """How long a dead process stays down."""
    supervised: float = 0.6
    """How often a supervisor closes the session of a dead broker."""
    faults: dict[str, float] = field(default_factory=lambda: {"kill": 1.0})
    """Kind -> weight."""
    topics: dict[str, int] = field(default_factory=lambda: {"log": 2})
    replicas: dict[str, int] = field(default_factory=dict)
    """Replicas of a topic; three if it is not named."""
    topic_configs: dict[str, str] = field(default_factory=dict)
    is_administered: bool = False
    """Whether an admin client works meanwhile (`sim.admin`)."""
    transactional_producers: int = 0
    """Applications with a transactional id; with any, a copier and consumers work, too."""
    queries: int = 0
    """Spark queries that write epochs (`sim.spark_queries`)."""
    members: int = 0
    """Members of a consumer group (`sim.consumer_members`)."""
    assignor: str = ""
    """With one of the SDK's assignors the group has the classic protocol
    (`sim.classic_members`)."""
    share_members: int = 0
    """Members of a share group (`sim.share_members`)."""
    session_s: float = SESSION_MS / 1000
    """Of the members of both groups."""
    properties: dict[str, str] = field(default_factory=dict)


def make_plan(random: Random) -> Plan:
    """A random plan."""
    chosen = random.sample(KINDS, random.randint(2, 6))
    faults = {kind: random.uniform(0.2, 1.0) for kind in chosen}
    faults.setdefault("kill", ALWAYS_WEIGHT)
    configs = {
        "min.insync.replicas": "2",
        "segment.bytes": str(random.choice([2_000, 8_000, 1_000_000])),
        "retention.ms": "-1",
        "message.timestamp.after.max.ms": str(2**62),  # clocks may be set
    }
    if random.random() < 0.3:
        configs["flush.ms"] = str(random.choice([100, 1000]))
    if random.random() < 0.1:
        configs["flush.messages"] = "1"
    plan = Plan(
        chaos_s=random.uniform(10, 25),
        fault_pause_s=random.choice([0.4, 1.0, 2.0, 4.0]),
        produce_pause_s=random.choice([0.05, 0.15, 0.4]),
        supervised=random.choice([0.0, 0.5, 1.0]),
        faults=faults,
        topics={"log": random.choice([1, 2])},
        topic_configs=configs,
    )
    # Drawn apart, so that the other choices of a seed stay the same.
    apart = Random(f"folders {plan.chaos_s}")
    if apart.random() < FOLDERS_CHANCE:
        plan.faults["folder"] = apart.uniform(0.2, 1.0)
        plan.properties["log.dirs"] = apart.choice(["/disk", "/disk/a,/disk/b"])
    apart = Random(f"administrator {plan.chaos_s}")
    if apart.random() < ADMIN_CHANCE:
        administer(plan)
    apart = Random(f"transactions {plan.chaos_s}")
    if apart.random() < TRANSACTIONS_CHANCE:
        transact(plan, apart.randint(1, 3))
    apart = Random(f"spark queries {plan.chaos_s}")
    if not plan.transactional_producers and apart.random() < QUERIES_CHANCE:
        write_epochs(plan, apart.randint(1, 2))
    apart = Random(f"lone logs {plan.chaos_s}")
    is_lone = plan.transactional_producers and not plan.is_administered
    if is_lone and apart.random() < LONE_CHANCE:
        leave_alone(plan)
    apart = Random(f"members {plan.chaos_s}")
    is_free = not (plan.is_administered or plan.transactional_producers)
    if is_free and apart.random() < GROUPS_CHANCE:
        group(plan, apart.randint(2, 5))
    apart = Random(f"share members {plan.chaos_s}")
    if is_free and not plan.members and apart.random() < SHARES_CHANCE:
        share(plan, apart.randint(2, 4))
    return plan


def plan_of(seed: int, kind: str) -> Plan:
    """The plan of a world with nothing but one group, of one of GROUP_KINDS: many of them are as
    quick as one with everything. `groups`: of each kind in turn. LONE: with nothing but
    transactional clients, whose logs have no followers."""
    if kind == "groups":
        kind = GROUP_KINDS[seed % len(GROUP_KINDS)]
    random = Random(f"{kind} {seed}")
    drawn = make_plan(random)
    kept = {f.name: getattr(drawn, f.name) for f in fields(Plan) if f.name in _OF_ANY_WORLD}
    plan = Plan(**kept, topics={})
    folders = drawn.properties.get("log.dirs")
    if folders is not None:
        plan.properties["log.dirs"] = folders
    if kind == LONE:
        transact(plan, random.randint(1, 3))
        leave_alone(plan)
        return plan
    (share if kind == "share" else group)(plan, random.randint(2, 5))
    if kind == "classic":
        plan.assignor = random.choice(sorted(ASSIGNORS))
    return plan


def group(plan: Plan, members: int = 3) -> None:
    """Add a consumer group and its topic."""
    plan.members = members
    plan.topics = {**plan.topics, GROUPED: 5}
    plan.properties.update(GROUP_PROPERTIES)


def share(plan: Plan, members: int = 3) -> None:
    """Add a share group and its topic."""
    plan.share_members = members
    plan.topics = {**plan.topics, SHARED: 2}
    plan.properties.update(SHARE_PROPERTIES)


def administer(plan: Plan) -> None:
    """Add an admin client, and a topic whose replicas can move."""
    plan.is_administered = True
    plan.topics = {**plan.topics, MOVED: 2}
    plan.replicas[MOVED] = 2


def transact(plan: Plan, producers: int = 2) -> None:
    """Add transactional producers and a copier with their topics."""
    plan.transactional_producers = producers
    plan.topics = {**plan.topics, TRANSACTED: 2, COPIED: 1}
    plan.properties.update(TRANSACTION_PROPERTIES)


def leave_alone(plan: Plan) -> None:
    """Leave one replica of the internal topics and of the transactional clients' topics: what their
    leaders append is committed at once, and must survive their crashes."""
    plan.properties.update(LONE_PROPERTIES)
    plan.replicas.update({TRANSACTED: 1, COPIED: 1})
    plan.faults = {kind: w for kind, w in plan.faults.items() if kind not in DESTRUCTIVE}


def write_epochs(plan: Plan, queries: int = 1) -> None:
    """Add Spark queries that write epochs, and a transactional producer beside them."""
    transact(plan, 1)
    plan.queries = queries
    plan.properties.update(EPOCH_PROPERTIES)
