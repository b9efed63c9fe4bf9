"""Listing, describing and deleting the groups of a shard. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.errors import ErrorCode
from headwater.wire.apis.k15_describe_groups import DescribedGroup, DescribedGroupMember
from headwater.wire.apis.k16_list_groups import ListedGroup
from headwater.wire.apis.k69_consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from headwater_broker.coordinator.common.shard import Decision, Decisions, Now, Token
from headwater_broker.coordinator.group import offsets
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.states import GroupState
from headwater_broker.coordinator.group.consumer import description
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.subscriptions import Topics
from headwater_broker.coordinator.group.group_kind import GroupKind
from headwater_broker.coordinator.group.table import GroupRules, GroupTable


class GroupAdministration:
    """Requests of tools about groups."""

    def __init__(
        self, table: GroupTable, rules: Mapping[GroupKind, GroupRules], topics: Topics
    ) -> None:
        self._table = table
        self._rules = rules
        self._topics = topics

    def describe(self, group_id: str, _now: Now, token: Token) -> Decision:
        """The reply is a DescribedGroup of a classic group; others are Dead (KIP-1043)."""
        group = self._table.groups.get(group_id)
        if not isinstance(group, Group):
            text = f"Group {group_id} not found."
            if group is not None:
                text = f"Group {group_id} is not a classic group."
            row = DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=text,
                group_id=group_id,
                group_state=GroupState.DEAD.value,
            )
        else:
            row = _described(group)
        return Decision().reply(token, row)

    def describe_consumer_group(self, group_id: str, _now: Now, token: Token) -> Decision:
        """The reply is a DescribedGroup of ConsumerGroupDescribe."""
        group = self._table.groups.get(group_id)
        row: DescribedConsumerGroup
        if isinstance(group, ConsumerGroup):
            row = description.describe(group, self._topics)
        else:
            row = description.not_found(group_id)
        return Decision().reply(token, row)

    def list_groups(
        self, states: frozenset[str], types: frozenset[str], _now: Now, token: Token
    ) -> Decision:
        """The reply is a list of ListedGroup; empty filters (lower case) mean all."""
        rows = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=str(group.state.value),
                group_type=group.kind.value,
            )
            for group in self._table.groups.values()
            if (not states or str(group.state.value).lower() in states)
            and (not types or group.kind.value in types)
        ]
        return Decision().reply(token, rows)

    def delete_groups(self, names: Iterable[str], _now: Now, token: Token) -> Decisions:
        """The reply is a code per group id. A group with offsets goes in several decisions: its own
        tombstones are the last ones, or those of a group without offsets the only ones."""
        out = Decision()
        codes: dict[str, ErrorCode] = {}
        for name in names:
            group = self._table.groups.get(name)
            if group is None:
                codes[name] = ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.is_empty:
                codes[name] = ErrorCode.NON_EMPTY_GROUP
            else:
                codes[name] = ErrorCode.NONE
                out.records += offsets.tombstones(group, None, self._table.pending(name))
                out.records += self._rules[group.kind].tombstones(group)
        return out.confirm(token, codes).split()


def _described(group: Group) -> DescribedGroup:
    is_stable = group.is_in(GroupState.STABLE)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata(group.protocol) if is_stable else b"",
                member_assignment=m.assignment if is_stable else b"",
            )
            for m in group.members.values()
        ),
    )
