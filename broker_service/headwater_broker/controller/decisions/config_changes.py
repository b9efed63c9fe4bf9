"""Decisions on config changes of topics and brokers: validation, new configs, elections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headwater.config.dynamic_check import check_dynamic
from headwater.config.keys import Kind, broker_key, check_topic_together, group_key, topic_key
from headwater.config.row import ConfigKey
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ports.metadata_store import Create, Set
from headwater_broker.controller.decisions import leader_elections
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.decisions.group_config_changes import check_group_configs
from headwater_broker.controller.events import (
    AlterConfigs,
    BrokerConfigChange,
    ConfigEdit,
    Reply,
    ResourceKind,
    TopicConfigChange,
    TopicConfigRejected,
    TopicResult,
)
from headwater_broker.controller.state import (
    MIN_INSYNC_REPLICAS,
    TIERING_KEY,
    ControllerState,
    Topic,
    is_tiered,
)
from headwater_broker.controller.write_batches import check_size
from headwater_broker.metadata import znodes

STAYS_TIERED = (
    f"config {TIERING_KEY}: cannot be switched off or removed once it is true, as brokers would no "
    "longer serve the history in the Delta table (Kafka wants remote.log.delete.on.disable for "
    "this, which Headwater does not have). To move no more records into the table, stop "
    "`headwater tier run`; to delete the history, delete the topic"
)
SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""


def on_alter_configs(
    state: ControllerState, decision: DecisionBuilder, event: AlterConfigs
) -> None:
    """Alter configs (KIP-339). An invalid edit does not affect the others."""
    results = []
    for edit in event.edits:
        try:
            _ALTER[edit.kind](state, decision, edit, is_real=not event.validate_only)
        except KafkaError as e:
            results.append(TopicResult(name=edit.name, error=e.code, message=e.detail))
            continue
        results.append(TopicResult(name=edit.name))
    decision.reply(Reply(event.token, tuple(results), after_delivery=not event.validate_only))


def _alter_topic(
    state: ControllerState, decision: DecisionBuilder, edit: ConfigEdit, *, is_real: bool
) -> None:
    topic = state.topics.get(edit.name)
    if topic is None:
        text = f"The topic '{edit.name}' does not exist."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    configs = edited(topic.configs, edit, topic_key)
    check_config_size(znodes.topic_config_path(topic.name), configs)
    check_change(topic.configs, configs)
    if is_real and configs != topic.configs:
        is_eligibility_other = _has_other_minimum(topic.configs, configs)
        _set_configs(decision, topic, configs)
        decision.write_configs(topic)
        if is_eligibility_other:
            leader_elections.recheck_elr(state, decision, topic.partitions.values())
        _elect_if_allowed(state, decision, topic)


def _alter_broker(
    state: ControllerState, decision: DecisionBuilder, edit: ConfigEdit, *, is_real: bool
) -> None:
    """Alter the configs of one broker, live or not, or with an empty name of all (KIP-226)."""
    broker = _broker_of(state, edit.name)
    now = state.broker_configs.get(broker, {})
    configs = edited(now, edit, broker_key)
    check_config_size(znodes.broker_config_path(broker), configs)
    for name, text in configs.items():
        if now.get(name) != text:
            _check_broker_config(name, text)
    if is_real and configs != now:
        state.broker_configs[broker] = configs
        decision.write_broker_configs(broker)
        if _has_other_minimum(now, configs):
            leader_elections.recheck_elr(state, decision, state.partitions())


def _alter_group(
    state: ControllerState, decision: DecisionBuilder, edit: ConfigEdit, *, is_real: bool
) -> None:
    """Alter the configs of a group, which need not exist (KIP-848)."""
    if not edit.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    now = state.group_configs.get(edit.name, {})
    configs = edited(now, edit, group_key)
    check_config_size(znodes.group_config_path(edit.name), configs)
    check_group_configs(state, configs)
    if is_real and configs != now:
        decision.write_group_configs(edit.name, configs)


_ALTER = {
    ResourceKind.TOPIC: _alter_topic,
    ResourceKind.BROKER: _alter_broker,
    ResourceKind.GROUP: _alter_group,
}


def _has_other_minimum(now: Mapping[str, str], then: Mapping[str, str]) -> bool:
    """Whether min.insync.replicas changes. Only then all partitions are checked: a request may hold
    many edits."""
    return now.get(MIN_INSYNC_REPLICAS) != then.get(MIN_INSYNC_REPLICAS)


def _broker_of(state: ControllerState, name: str) -> str:
    """The name of the broker's config node (`7` for `007`); empty: all brokers.

    Raises KafkaError: INVALID_REQUEST, or BROKER_ID_NOT_REGISTERED for a broker that never ran.
    """
    if not name:
        return name
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {name!r} is not a broker id")
    broker = int(name)
    if not state.was_registered(broker) and str(broker) not in state.broker_configs:
        text = f"broker {broker} was never registered: start it once, then set its configs"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
    return str(broker)


def _check_broker_config(name: str, text: str) -> None:
    try:
        check_dynamic(name, text)
    except UsageError as e:  # Kafka answers INVALID_CONFIG for topics only
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(e)) from e


def on_topic_config_change(
    state: ControllerState, decision: DecisionBuilder, event: TopicConfigChange
) -> None:
    """A tool wrote `/config/topics/T`, and the change is valid."""
    topic = state.topics.get(event.topic)
    if topic is None:
        return
    _set_configs(decision, topic, dict(event.configs))
    topic.has_config = event.has_config
    leader_elections.recheck_elr(state, decision, topic.partitions.values())
    decision.publish_topic(topic)
    _elect_if_allowed(state, decision, topic)


def on_topic_config_rejected(
    state: ControllerState, decision: DecisionBuilder, event: TopicConfigRejected
) -> None:
    """Write the configs in effect back, unless the node was edited once more since."""
    topic = state.topics.get(event.topic)
    if topic is None:
        return
    path = znodes.topic_config_path(topic.name)
    data = znodes.encode_overrides(topic.configs)
    version = event.version
    decision.write(Create(path, data) if version is None else Set(path, data, version))
    topic.has_config = True


def on_broker_config_change(
    state: ControllerState, decision: DecisionBuilder, event: BrokerConfigChange
) -> None:
    """A tool wrote `/config/brokers/N`. The broker uses the valid configs and logs the others."""
    state.broker_configs[event.name] = dict(event.configs)
    if event.has_node:
        state.stored_broker_configs.add(event.name)
    else:
        state.stored_broker_configs.discard(event.name)
    leader_elections.recheck_elr(state, decision, state.partitions())
    decision.publish_broker_configs()


def _elect_if_allowed(state: ControllerState, decision: DecisionBuilder, topic: Topic) -> None:
    """Elect again where a leader is missing: unclean election may just have been allowed."""
    for partition in topic.partitions.values():
        if partition.key in state.leaderless:
            leader_elections.elect(state, decision, partition)


def check_configs(configs: Mapping[str, str]) -> None:
    """Check overrides of a topic. Raises KafkaError(INVALID_CONFIG)."""
    try:
        check_topic_together(configs)
    except UsageError as e:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(e)) from e


def check_config_size(path: str, configs: Mapping[str, str]) -> None:
    """Check the total size, before the values: parsing lists of millions would block the loop.

    Raises KafkaError(INVALID_CONFIG).
    """
    node = Set(path, znodes.encode_overrides(configs))
    check_size((node,), "the configs of this resource", ErrorCode.INVALID_CONFIG)


def check_change(now: Mapping[str, str], then: Mapping[str, str]) -> None:
    """Check a change of overrides; tiering stays on (KIP-950). Raises INVALID_CONFIG."""
    check_configs(then)
    if is_tiered(now) and not is_tiered(then):
        raise KafkaError(ErrorCode.INVALID_CONFIG, STAYS_TIERED)


def _set_configs(decision: DecisionBuilder, topic: Topic, configs: dict[str, str]) -> None:
    """Set the overrides. The topic's node also records that it is tiered."""
    is_news = is_tiered(configs) and not topic.is_tiered
    topic.configs = configs
    if is_news:
        decision.write_assignment(topic)


def edited(
    configs: Mapping[str, str], edit: ConfigEdit, key_of: Callable[[str], ConfigKey]
) -> dict[str, str]:
    """The overrides after an edit. Raises KafkaError."""
    result = {} if edit.replace else dict(configs)
    for name, operation, value in edit.operations:
        if operation == DELETE:  # of any name, as in Kafka: its tools delete throttles blindly
            result.pop(name, None)
            continue
        try:
            row = key_of(name)
        except UsageError as e:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(e)) from e
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"config {name}: the value is null")
        if operation == SET:
            result[name] = value
        elif row.kind is not Kind.LIST:
            text = f"config {name} is not a list: append and subtract do not apply"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        else:
            result[name] = _edit_list(result.get(name), row, operation, value)
    return result


def _edit_list(now: str | None, row: ConfigKey, operation: int, value: str) -> str:
    items = _items(now if now is not None else row.render(row.default))
    given = _items(value)
    if operation == APPEND:
        known = frozenset(items)
        return ",".join([*items, *(v for v in given if v not in known)])
    if operation == SUBTRACT:
        known = frozenset(given)
        return ",".join(v for v in items if v not in known)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"config {row.name}: unknown operation {operation}")


def _items(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
