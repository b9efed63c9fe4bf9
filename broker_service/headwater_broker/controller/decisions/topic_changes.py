"""Decisions on new topics and new partitions: validation, replica placement, first leaders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.replica_placement import assign, assign_by_rack
from headwater.topic_names import INTERNAL_TOPICS, KRAFT_TOPIC, topic_name_fault
from headwater_broker.controller.decisions import leader_elections
from headwater_broker.controller.decisions.config_changes import check_config_size, check_configs
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import (
    ChangedTopic,
    CreatePartitions,
    CreateTopics,
    NewTopic,
    PartitionGrowth,
    Reply,
    TopicChange,
    TopicResult,
)
from headwater_broker.controller.state import (
    ControllerState,
    Partition,
    Topic,
    fold_name,
)
from headwater_broker.controller.state_machines import PartitionPhase, ReplicaPhase
from headwater_broker.metadata import znodes
from headwater_broker.metadata.znodes import NO_DIRECTORY

PARTITIONS_PER_TOPIC_MAX = 20_000
"""One ZooKeeper node, of less than 1 MiB, holds all replica lists of a topic."""


def check_name(topic: str) -> None:
    """Check a topic's name. Raises KafkaError(INVALID_TOPIC_EXCEPTION)."""
    if text := topic_name_fault(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def on_create_topics(
    state: ControllerState, decision: DecisionBuilder, event: CreateTopics, entropy: Entropy
) -> None:
    """Create topics. An invalid topic does not affect the others; too many partitions in total fail
    the whole request, before any placement."""
    if _exceeds_request_limit(state, sum(_requested_partitions(state, t) for t in event.topics)):
        decision.reply(Reply(event.token, tuple(_excessive(state, t.name) for t in event.topics)))
        return
    times = Counter(t.name for t in event.topics)
    results = []
    for spec in event.topics:
        try:
            if times[spec.name] > 1:
                text = f"topic {spec.name!r} is named twice in the request"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
            topic = _plan_topic(state, spec, entropy)
        except KafkaError as e:
            results.append(TopicResult(name=spec.name, error=e.code, message=e.detail))
            continue
        if not event.validate_only:
            enter_topic(state, decision, topic)
            decision.create_topic(topic)
        results.append(_result_of(topic, is_real=not event.validate_only))
    decision.reply(Reply(event.token, tuple(results), after_delivery=not event.validate_only))


def _result_of(topic: Topic, *, is_real: bool) -> TopicResult:
    return TopicResult(
        name=topic.name,
        topic_id=topic.topic_id if is_real else NO_DIRECTORY,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=dict(topic.configs),
    )


def _plan_topic(state: ControllerState, spec: NewTopic, entropy: Entropy) -> Topic:
    check_name(spec.name)
    if spec.name == KRAFT_TOPIC:
        text = f"Creation of internal topic {spec.name} is prohibited."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if spec.name in state.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{spec.name}' already exists.")
    if spec.name in state.unusable:
        text = f"Topic '{spec.name}' exists in ZooKeeper, but its node is not valid: mend it"
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{text}: {state.unusable[spec.name]}")
    other = state.folded_names.get(fold_name(spec.name))
    if other is not None:
        text = f"Topic '{spec.name}' collides with existing topic: {other} ('.' and '_' are alike)"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    configs = {k: v for k, v in spec.configs.items() if v is not None}
    if len(configs) != len(spec.configs):
        null = sorted(k for k, v in spec.configs.items() if v is None)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"null values for {null}")
    check_config_size(znodes.topic_config_path(spec.name), configs)
    check_configs(configs)
    placed = _placement(state, spec, entropy)
    topic_id = entropy.uuid()
    partitions = {
        index: Partition(spec.name, topic_id, index, replicas) for index, replicas in placed.items()
    }
    # A config node without a topic is overwritten, as in Kafka with ZooKeeper
    # (setOrCreateEntityConfigs): a new topic has the overrides of its request and no others.
    has_config = spec.name in state.stray_configs
    return Topic(spec.name, topic_id, partitions, configs, has_config=has_config)


def _placement(
    state: ControllerState, spec: NewTopic, entropy: Entropy
) -> dict[int, tuple[int, ...]]:
    if spec.assignments:
        if spec.num_partitions != -1 or spec.replication_factor != -1:
            text = "both manual assignments and numPartitions or replicationFactor are set"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if spec.repeated:
            text = f"partitions that are assigned more than once: {list(spec.repeated)}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        check_manual(state, spec.assignments)
        return dict(sorted(spec.assignments.items()))
    default = state.config
    count = default.num_partitions if spec.num_partitions == -1 else spec.num_partitions
    factor = spec.replication_factor
    factor = default.default_replication_factor if factor == -1 else factor
    return _place(state, count, factor, entropy)


def _requested_partitions(state: ControllerState, spec: NewTopic) -> int:
    if spec.assignments:
        return len(spec.assignments)
    return state.config.num_partitions if spec.num_partitions == -1 else max(spec.num_partitions, 0)


def _requested_growth(state: ControllerState, growth: PartitionGrowth) -> int:
    topic = state.topics.get(growth.name)
    if topic is None or growth.count > PARTITIONS_PER_TOPIC_MAX:
        return 0  # this topic fails by itself
    return max(growth.count - len(topic.partitions), 0)


def _exceeds_request_limit(state: ControllerState, new_partitions: int) -> bool:
    """Whether placing so many partitions would block the loop (Kafka:
    validateTotalNumberOfPartitions)."""
    return new_partitions > state.config.max_partitions_per_request


def _excessive(state: ControllerState, topic: str) -> TopicResult:
    most = state.config.max_partitions_per_request
    text = f"Excessively large number of partitions per request: the limit is {most}."
    return TopicResult(name=topic, error=ErrorCode.POLICY_VIOLATION, message=text)


def _usable(state: ControllerState) -> list[int]:
    """Brokers that may get new replicas."""
    return sorted(b for b in state.brokers if b not in state.shutting_down)


def _place(
    state: ControllerState,
    count: int,
    factor: int,
    entropy: Entropy | None,
    *,
    start: int = 0,
    shift: int = 0,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    brokers = _usable(state)
    if entropy is not None and brokers:
        start = int(entropy.uniform(0, len(brokers))) % len(brokers)
        shift = int(entropy.uniform(0, len(brokers))) % len(brokers)
    racks = {b: state.brokers[b].live().rack for b in brokers}
    known = {b: rack for b, rack in racks.items() if rack is not None}
    if brokers and len(known) == len(brokers):
        return assign_by_rack(
            known, count, factor, start=start, shift=shift, first_partition=first_partition
        )
    return assign(brokers, count, factor, start=start, shift=shift, first_partition=first_partition)


def check_manual(
    state: ControllerState, assignments: Mapping[int, tuple[int, ...]], first: int = 0
) -> None:
    """Check a manual assignment: consecutive partitions, replica lists of one size without
    duplicates, known brokers, at least one of them usable.

    Raises KafkaError(INVALID_REPLICA_ASSIGNMENT).
    """
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    usable = frozenset(_usable(state))
    if sorted(assignments) != list(range(first, first + len(assignments))):
        text = f"partitions are not numbered from {first} on without gaps: {sorted(assignments)}"
        raise KafkaError(bad, text)
    sizes = {len(replicas) for replicas in assignments.values()}
    if sizes == {0} or len(sizes) > 1:
        raise KafkaError(bad, f"partitions have different or no numbers of replicas: {assignments}")
    for index, replicas in assignments.items():
        if len(set(replicas)) != len(replicas):
            raise KafkaError(bad, f"partition {index}: duplicate replicas {list(replicas)}")
        unknown = [b for b in replicas if not state.was_registered(b)]
        if unknown:
            raise KafkaError(bad, f"partition {index}: unknown brokers {unknown}")
        if not any(b in usable for b in replicas):
            text = "All brokers specified in the manual partition assignment for partition"
            raise KafkaError(bad, f"{text} {index} are fenced or in controlled shutdown.")


def enter_topic(state: ControllerState, decision: DecisionBuilder, topic: Topic) -> None:
    """Add a topic to the state and elect its first leaders."""
    state.add_topic(topic)
    for partition in topic.partitions.values():
        _enter_partition(state, decision, partition)


def _enter_partition(
    state: ControllerState, decision: DecisionBuilder, partition: Partition
) -> None:
    partition.move(PartitionPhase.NEW)
    for broker_id in partition.replicas:
        partition.move_replica(broker_id, ReplicaPhase.NEW)
        if broker_id not in state.brokers:
            partition.move_replica(broker_id, ReplicaPhase.OFFLINE)
    decision.publish(partition)
    leader_elections.first_leader(state, decision, partition)


def on_topic_change(
    state: ControllerState, decision: DecisionBuilder, event: TopicChange, entropy: Entropy
) -> None:
    """Topics or partitions that a tool wrote into ZooKeeper."""
    state.unusable = dict(event.unusable)
    for found in event.topics:
        known = state.topics.get(found.name)
        if known is None:
            _adopt(state, decision, found, entropy)
        elif found.version > known.version:
            known.version = found.version
            added = {
                index: Partition(known.name, known.topic_id, index, replicas)
                for index, replicas in sorted(found.assignment.partitions.items())
                if index not in known.partitions
            }
            _add_partitions(state, decision, known, added)


def _adopt(
    state: ControllerState, decision: DecisionBuilder, found: ChangedTopic, entropy: Entropy
) -> None:
    is_named = found.assignment.topic_id != NO_DIRECTORY
    topic_id = found.assignment.topic_id if is_named else entropy.uuid()
    partitions = {
        index: Partition(found.name, topic_id, index, replicas)
        for index, replicas in sorted(found.assignment.partitions.items())
    }
    topic = Topic(found.name, topic_id, partitions, dict(found.configs), found.version)
    topic.has_config = found.has_config
    enter_topic(state, decision, topic)
    decision.publish_topic(topic)
    if not is_named or topic.is_tiered != found.assignment.is_tiered:
        decision.write_assignment(topic)


def _add_partitions(
    state: ControllerState, decision: DecisionBuilder, topic: Topic, added: Mapping[int, Partition]
) -> None:
    for index, partition in added.items():
        topic.partitions[index] = partition
        state.add_partition(partition)
        _enter_partition(state, decision, partition)


def on_create_partitions(
    state: ControllerState, decision: DecisionBuilder, event: CreatePartitions
) -> None:
    """Add partitions to topics. Too many new ones in total fail the whole request: Kafka's limit on
    the metadata records of one request is as high."""
    if _exceeds_request_limit(state, sum(_requested_growth(state, t) for t in event.topics)):
        decision.reply(Reply(event.token, tuple(_excessive(state, t.name) for t in event.topics)))
        return
    results = []
    times = Counter(t.name for t in event.topics)
    for growth in event.topics:
        try:
            if times[growth.name] > 1:
                text = f"topic {growth.name!r} is named twice in the request"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
            topic, placed = _plan_growth(state, growth)
        except KafkaError as e:
            results.append(TopicResult(name=growth.name, error=e.code, message=e.detail))
            continue
        if not event.validate_only:
            rows = {i: Partition(topic.name, topic.topic_id, i, r) for i, r in placed.items()}
            decision.write_assignment(topic)
            _add_partitions(state, decision, topic, rows)
        results.append(TopicResult(name=growth.name, topic_id=topic.topic_id))
    decision.reply(Reply(event.token, tuple(results), after_delivery=not event.validate_only))


def _plan_growth(
    state: ControllerState, growth: PartitionGrowth
) -> tuple[Topic, dict[int, tuple[int, ...]]]:
    topic = state.topics.get(growth.name)
    if topic is None:
        text = f"The topic '{growth.name}' does not exist."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if topic.name in INTERNAL_TOPICS:
        text = f"the number of partitions of {topic.name} cannot be changed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    now = len(topic.partitions)
    if growth.count <= now:
        text = f"Topic has {now} partitions; the number can only be increased, not to "
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{text}{growth.count}.")
    first = topic.partitions[min(topic.partitions)].target  # also during a reassignment
    more = growth.count - now
    if growth.count > PARTITIONS_PER_TOPIC_MAX:
        text = f"A topic may have {PARTITIONS_PER_TOPIC_MAX} partitions, not {growth.count}."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    if growth.assignments is not None:
        placed = dict(enumerate(growth.assignments, now))
        if len(placed) != more:
            text = f"{more} new partitions, but {len(placed)} assignments"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        check_manual(state, placed, now)
        if any(len(r) != len(first) for r in placed.values()):
            text = f"every new partition needs {len(first)} replicas, like partition 0"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        return topic, placed
    brokers = _usable(state)
    # Continue the placement of partition 0, so that the leaders stay spread.
    start = next((i for i, b in enumerate(brokers) if b >= first[0]), 0)
    factor = len(first)
    return topic, _place(state, more, factor, None, start=start, shift=start, first_partition=now)
