"""ConsumerGroupHeartbeat: the request, and what makes it invalid by itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Named,
)

MayDescribe = Callable[[str], bool]
"""(topic) -> whether the client may see it."""


def sees_all(_topic: str) -> bool:
    """Of a cluster without an authorizer."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat; None, and -1 for the timeout: unchanged."""

    group_id: str
    member_id: str
    epoch: int
    """0: joins; -1: leaves; -2: a static member goes away for a moment."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    """The empty string: none any more."""
    assignor: str | None = None
    owned: Named | None = None
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""
    """The member id to give to a member without one (version 0)."""
    names_itself: bool = True
    """Version 1: the client makes the member id."""
    may_describe: MayDescribe = sees_all

    @property
    def is_full(self) -> bool:
        """True when the member says everything: it wants its assignment in the response."""
        if self.epoch == 0:
            return True
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None

    @property
    def is_bare(self) -> bool:
        """True when the member says nothing but that it lives."""
        return (
            self.owned is None
            and self.topics is None
            and self.rebalance_timeout_ms == -1
            and self.regex is None
            and self.assignor is None
            and self.rack_id is None
        )


def check(request: Heartbeat, assignors: Collection[str]) -> None:
    """Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if not request.member_id and (request.epoch != 0 or request.names_itself):
        raise _invalid("MemberId can't be empty.")
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value == "":
            raise _invalid(f"{name} can't be empty.")
    if request.epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is invalid: {request.epoch} is below {STATIC_LEAVE_EPOCH}.")
    if request.epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null when a static member goes away.")
    if request.epoch <= LEAVE_EPOCH:
        return
    if request.epoch == 0:
        _check_join(request)
    if request.assignor is not None and request.assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


def _check_join(request: Heartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
