"""`headwater reassign --throttle`: sets the throttles of moves, and removes them (KIP-73)."""

from __future__ import annotations

from headwater.client.admin import Admin
from headwater.client.plans import Plan
from headwater.client.throttles import Throttles, no_throttles


def apply_throttles(admin: Admin, wanted: Throttles) -> None:
    """Alter the configs of brokers and topics."""
    for broker_id, settings in sorted(wanted.brokers.items()):
        admin.alter_configs("broker", str(broker_id), settings)
    for topic, settings in sorted(wanted.topics.items()):
        admin.alter_configs("topic", topic, settings)


def remove_throttles(admin: Admin, plan: Plan) -> None:
    """From every broker, and every topic of the plan that is there, as Kafka's tool does; other
    moves that are under way keep theirs."""
    if admin.list_partition_reassignments():
        return
    known = set(admin.list_topics(include_internal=True))
    brokers = [broker.node_id for broker in admin.describe_cluster().brokers]
    wanted = no_throttles({tp: ids for tp, ids in plan.items() if tp.topic in known}, brokers)
    apply_throttles(admin, wanted)
