"""Leaders on request and by balance: preferred and unclean elections (KIP-460)."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater_broker.controller.decisions import elections, leader_selectors
from headwater_broker.controller.decisions.decision_builder import Changes
from headwater_broker.controller.decisions.leader_selectors import Case
from headwater_broker.controller.events import ElectLeaders, Reply
from headwater_broker.controller.state import NO_LEADER, ControllerState, Partition

Outcome = tuple[ErrorCode, str | None]


def on_elect_leaders(state: ControllerState, changes: Changes, event: ElectLeaders) -> None:
    """Elect for the partitions named; for all when none is named (then silent where not needed)."""
    results: dict[tuple[str, int], Outcome] = {}
    if event.partitions is None:
        for partition in state.partitions():
            outcome = _elect(state, changes, partition, unclean=event.unclean)
            if outcome[0] is not ErrorCode.ELECTION_NOT_NEEDED:
                results[partition.topic, partition.index] = outcome
    for topic, index in dict.fromkeys(event.partitions or ()):  # a second look finds nothing to do
        known = state.partition(topic, index)
        if known is None:
            text = f"partition {topic}-{index} does not exist"
            results[topic, index] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        else:
            results[topic, index] = _elect(state, changes, known, unclean=event.unclean)
    changes.reply(Reply(event.token, results, after_delivery=True))


def _elect(
    state: ControllerState, changes: Changes, partition: Partition, *, unclean: bool
) -> Outcome:
    if not unclean:
        return elect_preferred(state, changes, partition)
    if partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, f"{partition.name} has leader {partition.leader}"
    elections.elect(state, changes, partition, unclean=True)
    if partition.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, partition.offline_reason
    return ErrorCode.NONE, None


def elect_preferred(state: ControllerState, changes: Changes, partition: Partition) -> Outcome:
    """The first replica leads, if it is in sync; otherwise all stays as it is."""
    able = elections.may_lead(state, partition)
    replicas = partition.target
    choice = leader_selectors.preferred(replicas, partition.leader, partition.isr, able)
    if choice.case is Case.NOT_NEEDED:
        return ErrorCode.ELECTION_NOT_NEEDED, f"{partition.name}: {replicas[0]} leads already"
    if choice.leader is None:
        fault = state.fault(partition, replicas[0]) or f"ISR {list(partition.isr)} lacks it"
        text = f"{partition.name}: preferred replica {replicas[0]}: {fault}"
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text
    elections.lead(state, changes, partition, choice.leader, choice.isr)
    return ErrorCode.NONE, None


def balance(state: ControllerState, changes: Changes) -> int:
    """Bring leaders back to brokers that lead too few of what they should; how many moved.

    A broker is balanced when more than `leader.imbalance.per.broker.percentage` of the partitions
    it is preferred for are led elsewhere. Partitions being reassigned are left alone.
    """
    preferred: dict[int, list[Partition]] = {}
    for partition in state.partitions():
        preferred.setdefault(partition.replicas[0], []).append(partition)
    limit = state.config.leader_imbalance_per_broker_percentage / 100
    moved = 0
    for broker_id, rows in preferred.items():
        if broker_id not in state.brokers or broker_id in state.shutting_down:
            continue
        astray = [p for p in rows if p.leader not in (broker_id, NO_LEADER)]
        if len(astray) / len(rows) <= limit:
            continue
        for partition in astray:
            if partition.adding or partition.removing:
                continue
            moved += elect_preferred(state, changes, partition)[0] is ErrorCode.NONE
    return moved
