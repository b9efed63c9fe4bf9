"""Members that may commit offsets of a classic group: those of its generation (KIP-447). Pure."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.rebalance import ClassicProtocol, unknown_member
from headwater_broker.coordinator.group.classic.states import GroupState


class GenerationChecks:
    """Checks of members and their generation."""

    def __init__(self, protocol: ClassicProtocol) -> None:
        self._protocol = protocol

    def check_commit(
        self, group: Group, generation: int, member_id: str, instance_id: str | None, now: Now
    ) -> None:
        """Raises KafkaError unless an OffsetCommit comes from a member of this generation; a simple
        consumer or a tool (generation -1) may commit while there are none."""
        if generation < 0 and group.is_in(GroupState.EMPTY):
            # A consumer without membership may have an instance id, and a tool a member id.
            return
        if generation < 0 and not member_id and instance_id is None:
            raise unknown_member(group, "")
        member = self._protocol.member(group, member_id, instance_id)
        self._protocol.check_generation(group, generation)
        if group.is_in(GroupState.COMPLETING):
            # The member does not know its partitions yet: it commits what it no longer owns.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance is being completed")
        self._protocol.renew_session(group, member, now)

    def check_transactional_commit(
        self, group: Group, generation: int, member_id: str, instance_id: str | None
    ) -> None:
        """The member and its generation, if they are given, in whatever state the group is: a
        member commits in a transaction what it has read before a rebalance (KIP-447)."""
        if generation < 0 and group.is_in(GroupState.EMPTY):
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._protocol.member(group, member_id, instance_id)
            self._protocol.check_generation(group, generation)
