"""A share consumer's membership: ShareGroupHeartbeat (KIP-932). Pure.

The member makes its own id. It joins with epoch 0 and leaves with -1; each reply names the interval
to the next heartbeat, and the assignment when it has changed. There is nothing to revoke: members
share partitions.
"""

from __future__ import annotations

from enum import Enum, auto

from headwater.client.core.share_session import Place
from headwater.client.errors import error_code
from headwater.entropy import Entropy
from headwater.errors import ErrorCode
from headwater.ids import id_text
from headwater.wire.apis.k76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
DEFAULT_INTERVAL_S = 1.0
"""Until a reply has named one."""
_LOST = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH))
_MOVED = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
_LATER = frozenset((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,))


class AfterHeartbeat(Enum):
    """What follows from a reply."""

    WAIT = auto()
    """The next heartbeat is due after the interval."""
    JOIN = auto()
    """The group does not know this member any more: join at once."""
    FIND_COORDINATOR = auto()
    RETRY = auto()
    FAIL = auto()
    """No retry can help."""


class ShareMember:
    """One member of a share group."""

    def __init__(self, group_id: str, entropy: Entropy, rack: str = "") -> None:
        self.group_id = group_id
        self.member_id = id_text(entropy.uuid())
        self.epoch = JOIN_EPOCH
        self.interval_s = DEFAULT_INTERVAL_S
        self.topics: tuple[str, ...] = ()
        self.assigned: set[Place] = set()
        self.error = ErrorCode.NONE
        self.detail = ""
        """Of the last reply."""
        self._rack = rack
        self._told: tuple[str, ...] | None = None
        """The topics that the coordinator knows."""

    @property
    def is_joined(self) -> bool:
        """True while the group has this member."""
        return self.epoch > JOIN_EPOCH

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """The next heartbeat tells these topics."""
        self.topics = topics

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """Join, or say that this member lives; topics only when they are news."""
        is_join = self.epoch == JOIN_EPOCH
        tells = is_join or self._told != self.topics
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=(self._rack or None) if is_join else None,
            subscribed_topic_names=self.topics if tells else None,
        )

    def on_heartbeat(
        self, request: ShareGroupHeartbeatRequest, reply: ShareGroupHeartbeatResponse
    ) -> AfterHeartbeat:
        """Apply a reply."""
        self.error = error_code(reply.error_code)
        self.detail = reply.error_message or ""
        if self.error in _LOST:
            self.leave()
            return AfterHeartbeat.JOIN
        if self.error in _MOVED:
            return AfterHeartbeat.FIND_COORDINATOR
        if self.error in _LATER:
            return AfterHeartbeat.RETRY
        if self.error is not ErrorCode.NONE:
            return AfterHeartbeat.FAIL
        self.epoch = reply.member_epoch
        self.interval_s = reply.heartbeat_interval_ms / 1000
        if request.subscribed_topic_names is not None:
            self._told = request.subscribed_topic_names
        if reply.assignment is not None:
            self.assigned = {
                Place(topic.topic_id, partition)
                for topic in reply.assignment.topic_partitions
                for partition in topic.partitions
            }
        return AfterHeartbeat.WAIT

    def goodbye(self) -> ShareGroupHeartbeatRequest:
        """Leave the group."""
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )

    def leave(self) -> None:
        """The group has this member no more."""
        self.epoch = JOIN_EPOCH
        self.assigned = set()
        self._told = None
