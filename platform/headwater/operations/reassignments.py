"""Runs partition reassignments until a plan that is made anew at every look has no moves left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.client.partition_names import ByPartition
from headwater.client.values import (
    Broker,
    ClusterDescription,
    PartitionReassignment,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.local.manager import Progress
from headwater.operations.pacing import Pacing
from headwater.operations.replica_moves import NAMES_SHOWN_MAX, Replicas, replicas_of

PlanMoves = Callable[[Replicas, Sequence[Broker]], Replicas]
"""The replicas of all partitions and the live brokers -> the new replicas of those to move."""
PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # deleted meanwhile
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Refusals after which the next look decides anew."""


class ClusterAdmin(Protocol):
    """What the operations need of `headwater.Admin`."""

    def describe_cluster(self) -> ClusterDescription:
        """The live brokers and the controller."""
        ...

    def describe_topics(self) -> dict[str, TopicDescription]:
        """All topics, also internal ones, with their partitions."""
        ...

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress."""
        ...

    def alter_partition_reassignments(
        self, targets: ByPartition[list[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start reassignments; a later one of a partition replaces the one in progress."""
        ...


@dataclass(slots=True)
class _Look:
    """The cluster at one moment."""

    brokers: tuple[Broker, ...]
    moving: dict[TopicPartition, PartitionReassignment]
    targets: Replicas
    """The replicas when the reassignments in progress are done."""
    lagging: set[TopicPartition]
    """Partitions whose reassignment has ended, while the metadata shows their former replicas."""


class Reassignments:
    """Moves replicas, a limited number of partitions at the same time."""

    def __init__(self, admin: ClusterAdmin, pacing: Pacing, progress: Progress) -> None:
        self._admin = admin
        self._pacing = pacing
        self._progress = progress
        self._seen: dict[TopicPartition, tuple[float, tuple[int, ...]]] = {}
        """When a partition was last seen moving, and its replicas after that."""

    def run(self, plan: PlanMoves, goal: str, leaving: Collection[int] | None = None) -> int:
        """Move until `plan` has no moves; the number of partitions that moved.

        Reassignments in progress, such as those of an interrupted call, are waited for: all of
        them, or those that take a replica from a broker of `leaving`.
        """
        open_now: set[TopicPartition] = set()
        seen: set[TopicPartition] = set()
        changed_at = self._pacing.clock.monotonic()
        while True:
            look = self._look()
            moves = plan(look.targets, look.brokers)
            waited = {tp for tp, row in look.moving.items() if _concerns(row, leaving)}
            before = open_now
            open_now = waited | moves.keys() | look.lagging
            seen |= open_now
            if before - open_now:
                changed_at = self._pacing.clock.monotonic()
                count = len(seen) - len(open_now)
                self._progress(f"{count} of {len(seen)} partitions moved", count, len(seen))
            if not open_now:
                return len(seen)
            if self._pacing.clock.monotonic() - changed_at > self._pacing.stall_s:
                raise HeadwaterError(_stalled(goal, open_now, self._pacing.stall_s))
            self._submit(moves, self._pacing.moves_at_once - len(look.moving))
            self._pacing.sleep(self._pacing.poll_s)

    def _look(self) -> _Look:
        now = self._pacing.clock.monotonic()
        # Reassignments are listed before the topics and after them: the metadata of a partition
        # that moves shows its former and its new replicas together.
        moving = self._admin.list_partition_reassignments()
        shown = replicas_of(self._admin.describe_topics().values())
        moving |= self._admin.list_partition_reassignments()
        for tp, row in moving.items():
            self._seen[tp] = now, tuple(i for i in row.replicas if i not in row.removing_replicas)
        targets, lagging = dict(shown), set()
        for tp, (at, replicas) in list(self._seen.items()):
            if tp not in shown or now - at > self._pacing.settle_s:
                del self._seen[tp]
                continue
            if tp not in moving and shown[tp] != replicas:
                lagging.add(tp)
            targets[tp] = replicas
        return _Look(self._admin.describe_cluster().brokers, moving, targets, lagging)

    def _submit(self, moves: Replicas, room: int) -> None:
        batch = dict(sorted(moves.items())[: max(0, room)])
        if not batch:
            return
        now = self._pacing.clock.monotonic()
        outcomes = self._admin.alter_partition_reassignments(
            {tp: list(replicas) for tp, replicas in batch.items()}
        )
        for tp, error in outcomes.items():
            if error is None:
                self._seen[tp] = now, batch[tp]
            elif error.code not in PASSING:
                raise HeadwaterError(f"{tp.topic}-{tp.partition} is not moved: {error}")


def _concerns(row: PartitionReassignment, leaving: Collection[int] | None) -> bool:
    return leaving is None or not set(row.removing_replicas).isdisjoint(leaving)


def _stalled(goal: str, left: Collection[TopicPartition], stall_s: float) -> str:
    shown = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(left)[:NAMES_SHOWN_MAX])
    return (
        f"{goal}: {len(left)} partitions are not moved ({shown}), and none was in {stall_s:.0f} s:"
        " see `headwater reassign list` and `headwater status`, then run this command again"
    )
