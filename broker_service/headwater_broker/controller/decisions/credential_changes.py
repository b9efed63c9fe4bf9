"""Decisions on SCRAM credentials of users (KIP-554): their configs below `/config/users`."""

from __future__ import annotations

from headwater.config.quota_precedence import encoded
from headwater.errors import ErrorCode
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.decisions.quota_changes import store_entity
from headwater_broker.controller.events import AlterUserCredentials, Reply, TopicResult
from headwater_broker.controller.state import ControllerState


def on_alter_user_credentials(
    state: ControllerState, decision: DecisionBuilder, event: AlterUserCredentials
) -> None:
    """Set and remove credentials. One that is not there cannot be removed."""
    results = []
    for edit in event.edits:
        path = f"users/{encoded(edit.user)}"
        configs = dict(state.client_quotas.get(path, {}))
        if edit.credential is not None:
            configs[edit.mechanism] = edit.credential
        elif configs.pop(edit.mechanism, None) is None:
            text = "Attempt to delete a user credential that does not exist"
            results.append(TopicResult(name=path, error=ErrorCode.RESOURCE_NOT_FOUND, message=text))
            continue
        store_entity(state, decision, path, configs)
        results.append(TopicResult(name=path))
    decision.reply(Reply(event.token, tuple(results), after_delivery=True))
