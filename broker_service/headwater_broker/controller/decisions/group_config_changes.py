"""Decisions on the configs of groups (KIP-848, KIP-932, KIP-1240)."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.keys import check_group_overrides
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import GroupConfigChange
from headwater_broker.controller.state import ControllerState


def check_group_configs(state: ControllerState, configs: Mapping[str, str]) -> None:
    """Check the configs of a group against this broker's bounds. Raises INVALID_CONFIG."""
    try:
        check_group_overrides(configs, state.config.group_limits)
    except UsageError as e:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(e)) from e


def on_group_config_change(
    state: ControllerState, decision: DecisionBuilder, event: GroupConfigChange
) -> None:
    """A tool wrote or removed a group's node. Brokers use what is valid in it."""
    if event.configs is None:
        state.group_configs.pop(event.group_id, None)
    else:
        state.group_configs[event.group_id] = dict(event.configs)
    decision.publish_group_configs()
