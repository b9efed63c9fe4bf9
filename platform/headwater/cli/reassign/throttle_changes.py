"""Sets throttles of a reassignment, removes those that no other one in progress needs (KIP-73)."""

from __future__ import annotations

from headwater.cli.reassign.plan import Plan
from headwater.cli.reassign.throttles import (
    FOLLOWER_LIST,
    LEADER_LIST,
    Throttles,
    listed_brokers,
    no_throttles,
)
from headwater.client.admin.client import Admin
from headwater.errors import ErrorCode, KafkaError


def apply_throttles(admin: Admin, wanted: Throttles) -> None:
    """Alter the configs of topics first: their lists name the brokers that have a rate."""
    for topic, settings in sorted(wanted.topics.items()):
        admin.alter_configs("topic", topic, settings)
    for broker_id, settings in sorted(wanted.brokers.items()):
        admin.alter_configs("broker", str(broker_id), settings)


def remove_throttles(admin: Admin, plan: Plan) -> None:
    """Remove them from the plan's topics and from all brokers, except what other reassignments in
    progress need. Brokers that are down count too: they would come back with a throttle."""
    moves = admin.list_partition_reassignments()
    kept = {broker_id for move in moves.values() for broker_id in move.replicas}
    known = set(admin.list_topics(include_internal=True)) - {tp.topic for tp in moves}
    topics = {tp.topic for tp in plan} & known
    live = {broker.node_id for broker in admin.describe_cluster().brokers}
    brokers = live.union(*plan.values(), *(_listed(admin, topic) for topic in topics)) - kept
    for broker_id in sorted(brokers):
        try:
            apply_throttles(admin, no_throttles((), [broker_id]))
        except KafkaError as error:  # a plan may name brokers that do not exist
            if broker_id in live or error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise
    apply_throttles(admin, no_throttles(topics, ()))


def _listed(admin: Admin, topic: str) -> set[int]:
    found = admin.describe_configs("topic", topic)
    return listed_brokers(found[LEADER_LIST].value) | listed_brokers(found[FOLLOWER_LIST].value)
