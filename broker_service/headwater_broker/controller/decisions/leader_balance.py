"""Elections on request (ElectLeaders, KIP-460) and by the leader balance: preferred, unclean."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater_broker.controller.decisions import leader_elections, leader_selectors
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.decisions.leader_selectors import Case
from headwater_broker.controller.events import ElectLeaders, Reply
from headwater_broker.controller.state import NO_LEADER, CatchingUp, ControllerState, Partition

Outcome = tuple[ErrorCode, str | None]

STEADY_TICKS = 5
"""A broker must be back for this many ticks (seconds) before it leads: one that crashes again and
again would take its partitions offline each time."""


def on_elect_leaders(
    state: ControllerState, decision: DecisionBuilder, event: ElectLeaders
) -> None:
    """Elect leaders for the named partitions, or for all. For all, the reply leaves out partitions
    that need no election."""
    results: dict[tuple[str, int], Outcome] = {}
    if event.partitions is None:
        for partition in state.partitions():
            outcome = _elect(state, decision, partition, unclean=event.unclean)
            if outcome[0] is not ErrorCode.ELECTION_NOT_NEEDED:
                results[partition.topic, partition.index] = outcome
    for topic, index in dict.fromkeys(event.partitions or ()):  # each once, also if named twice
        known = state.partition(topic, index)
        if known is None:
            text = f"partition {topic}-{index} does not exist"
            results[topic, index] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        else:
            results[topic, index] = _elect(state, decision, known, unclean=event.unclean)
    decision.reply(Reply(event.token, results, after_delivery=True))


def _elect(
    state: ControllerState, decision: DecisionBuilder, partition: Partition, *, unclean: bool
) -> Outcome:
    if not unclean:
        return elect_preferred(state, decision, partition)
    if partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, f"{partition.name} has leader {partition.leader}"
    leader_elections.elect(state, decision, partition, unclean=True)
    if partition.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, partition.offline_reason
    return ErrorCode.NONE, None


def elect_preferred(
    state: ControllerState, decision: DecisionBuilder, partition: Partition
) -> Outcome:
    """Make the first replica the leader if it is in sync; otherwise change nothing."""
    able = leader_elections.may_lead(state, partition)
    replicas = partition.target
    choice = leader_selectors.preferred(replicas, partition.leader, partition.isr, able)
    if choice.case is Case.NOT_NEEDED:
        return ErrorCode.ELECTION_NOT_NEEDED, f"{partition.name}: {replicas[0]} leads already"
    if choice.leader is None:
        fault = state.fault(partition, replicas[0]) or f"ISR {list(partition.isr)} lacks it"
        text = f"{partition.name}: preferred replica {replicas[0]}: {fault}"
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text
    leader_elections.lead(state, decision, partition, choice.leader, choice.isr)
    return ErrorCode.NONE, None


def balance(state: ControllerState, decision: DecisionBuilder) -> int:
    """Elect preferred leaders for brokers that lead too few partitions; how many leaders moved.

    A broker is out of balance when others lead more than `leader.imbalance.per.broker.percentage`
    of the partitions that prefer it. Partitions that are being reassigned are left alone.
    """
    preferred: dict[int, list[Partition]] = {}
    for partition in state.partitions():
        preferred.setdefault(partition.replicas[0], []).append(partition)
    return sum(_balance_broker(state, decision, *row) for row in preferred.items())


def _balance_broker(
    state: ControllerState, decision: DecisionBuilder, broker_id: int, preferred: list[Partition]
) -> int:
    if broker_id not in state.brokers or broker_id in state.shutting_down:
        return 0
    astray = [p for p in preferred if p.leader not in (broker_id, NO_LEADER)]
    limit = state.config.leader_imbalance_per_broker_percentage / 100
    if len(astray) <= limit * len(preferred):
        return 0
    moved = 0
    for partition in astray:
        if not (partition.adding or partition.removing):
            moved += elect_preferred(state, decision, partition)[0] is ErrorCode.NONE
    return moved


def watch_catching_up(state: ControllerState, broker_id: int) -> None:
    """A broker is back: `balance_caught_up` gives it its leaderships as soon as it is in sync.

    Kafka leaves that to the next check of the balance, up to
    `leader.imbalance.check.interval.seconds` later. Nobody who restarts a broker, or a cluster,
    expects it to stand idle for minutes.
    """
    behind = [p for p in _preferring(state, broker_id) if _is_behind(state, p, broker_id)]
    if behind:
        state.catching_up[broker_id] = CatchingUp(behind)


def balance_caught_up(state: ControllerState, decision: DecisionBuilder) -> None:
    """Balance the brokers that are back and in sync with every partition that prefers them.

    Called at each tick. Offline partitions keep no broker waiting. They stay on its list: once
    another broker leads one of them, this one has to catch up there, too.
    """
    for broker_id, watched in list(state.catching_up.items()):
        watched.ticks += 1
        behind = [p for p in watched.partitions if _is_behind(state, p, broker_id)]
        if watched.ticks < STEADY_TICKS or any(p.leader != NO_LEADER for p in behind):
            continue
        has_caught_up = len(behind) < len(watched.partitions)
        watched.partitions = behind
        if not behind:
            del state.catching_up[broker_id]
        if has_caught_up and state.config.auto_leader_rebalance_enable:
            _balance_broker(state, decision, broker_id, _preferring(state, broker_id))


def _preferring(state: ControllerState, broker_id: int) -> list[Partition]:
    hosted = state.hosted.get(broker_id, {})
    return [partition for partition in hosted.values() if partition.replicas[0] == broker_id]


def _is_behind(state: ControllerState, partition: Partition, broker_id: int) -> bool:
    """Whether the broker is the preferred leader and not in sync yet."""
    is_hosted = state.hosted.get(broker_id, {}).get(partition.key) is partition
    return is_hosted and partition.replicas[0] == broker_id and broker_id not in partition.isr
