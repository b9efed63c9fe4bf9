"""Planted bugs, which such systems have had, each with the invariants that detect it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Delete, StoreError
from headwater.wire.control import PartitionState
from headwater_broker.app.dead_brokers import DeadBrokers
from headwater_broker.controller.decisions import leader_elections
from headwater_broker.controller.state import ControllerState
from headwater_broker.controller.zk import reader
from headwater_broker.log import retention, unified_log
from headwater_broker.log.retention import DeletionScope, SegmentAge
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.metadata import znodes
from headwater_broker.replica import replica_manager as manager
from headwater_broker.replica.control_fence import ControlFence
from headwater_broker.replica.leader_and_isr import HostedReplica, RoleTransition, decide
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replica_manager import ReplicaManager
from sim.log_operations import Deleting
from sim.plan import Plan, administer, group, leave_alone, share, transact, write_epochs
from sim.scripted import Scripted
from sim.world import World


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the invariants that may detect it, and the plan of a world in which it shows soon."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    seen_by: frozenset[str]
    faults: dict[str, float]
    supervised: float = 0.6
    down_s: tuple[float, float] = (0.1, 6.0)
    fault_pause_s: float = 0.7
    is_administered: bool = False
    transactional_producers: int = 0
    is_lone: bool = False
    """Whether the logs of transactions have no followers."""
    queries: int = 0
    members: int = 0
    assignor: str = ""
    share_members: int = 0
    kind: type[World] = World
    topics: dict[str, int] | None = None
    """The topics of the plan, if not those of all plans."""
    configs: dict[str, str] = field(default_factory=dict)
    """Topic configs in addition to those of all plans."""
    properties: dict[str, str] = field(default_factory=dict)
    first_seed: int = 0
    """A seed that detects it soon. Others do, too, and take longer."""
    is_long: bool = False
    """True: `make test` leaves it out, as another world detects the same bug."""

    def plan(self, chaos_s: float = 25.0) -> Plan:
        """A plan with the right faults."""
        plan = Plan(
            chaos_s=chaos_s,
            fault_pause_s=self.fault_pause_s,
            produce_pause_s=0.1,
            supervised=self.supervised,
            down_s=self.down_s,
            faults=self.faults,
            topic_configs={"min.insync.replicas": "2", "retention.ms": "-1", **self.configs},
            properties=dict(self.properties),
        )
        if self.topics is not None:
            plan.topics = dict(self.topics)
        if self.is_administered:
            administer(plan)
        if self.transactional_producers or issubclass(self.kind, Scripted):
            transact(plan, self.transactional_producers or 1)
        if self.queries:
            write_epochs(plan, self.queries)
        if self.is_lone:
            leave_alone(plan)
        if self.members:
            group(plan, self.members)
            plan.assignor = self.assignor
        if self.share_members:
            share(plan, self.share_members)
        return plan


def skip_the_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """Requests of old controllers and old leader epochs are applied like new ones."""

    def obey(
        hosted: HostedReplica | None, epoch: int, version: int, **where: bool
    ) -> RoleTransition:
        if hosted is not None and epoch < hosted.leader_epoch:
            hosted = None
        return decide(hosted, epoch, version, **where)

    patch.setattr(manager, "decide", obey)
    patch.setattr(ControlFence, "check", lambda *_: ErrorCode.NONE)


def ack_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """acks=all is answered as soon as the leader has the batch."""

    def outcome(self: Partition, last_offset: int, leader_epoch: int) -> ErrorCode | None:
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    patch.setattr(Partition, "outcome", outcome)


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A new follower truncates to its high watermark (before KIP-101)."""
    follow = Partition.become_follower

    def cut(self: Partition, state: PartitionState) -> None:
        follow(self, state)
        self.log.truncate_to(self.high_watermark)

    patch.setattr(Partition, "become_follower", cut)


def delete_the_registration_by_path(patch: pytest.MonkeyPatch) -> None:
    """A dead peer's registration is deleted by path, whatever session owns it."""

    async def bury(self: DeadBrokers, broker_id: int, *_: object) -> None:
        try:
            await self._store.multi([Delete(znodes.broker_path(broker_id))])
        except StoreError:
            return

    patch.setattr(DeadBrokers, "_close_session_of", bury)


def let_an_unknown_directory_lead(patch: pytest.MonkeyPatch) -> None:
    """The directory of a replica is not checked."""
    host = ReplicaManager._host

    def host_anything(self: ReplicaManager, state: PartitionState) -> Generator[Any, None, Any]:
        return host(self, replace(state, is_new=True))

    patch.setattr(ControllerState, "has_lost_directory", lambda *_: False)
    patch.setattr(leader_elections, "replica_lost_data", lambda *_: None)
    patch.setattr(ReplicaManager, "_host", host_anything)


def forget_removals_at_a_failover(patch: pytest.MonkeyPatch) -> None:
    """A new controller does not read pending deletions."""

    async def forget(*_: object) -> tuple[list[znodes.Deletion], list[UUID]]:
        return [], []

    patch.setattr(reader, "read_deletions", forget)


def retain_a_segment_too_few(patch: pytest.MonkeyPatch) -> None:
    """Retention deletes one segment more than retention.bytes allows."""
    plan = retention.plan

    def one_more(segments: Sequence[SegmentAge], *rest: Any) -> tuple[int, DeletionScope]:
        count, reach = plan(segments, *rest)
        return (min(count + 1, len(segments) - 1) if count else 0), reach

    patch.setattr(unified_log, "plan", one_more)


def delete_the_segment_of_the_start(patch: pytest.MonkeyPatch) -> None:
    """After DeleteRecords the segment with the log start offset is deleted, too."""
    retain = UnifiedLog.retain

    def one_more(self: UnifiedLog, *args: Any, **named: Any) -> int:
        start = self.log_start_offset
        later = [base for base in self.bases if base > start]
        if start > self.bases[0] and later:
            self.log_start_offset = later[0]
        count = retain(self, *args, **named)
        self.log_start_offset = max(start, self.bases[0])
        return count

    patch.setattr(UnifiedLog, "retain", one_more)


def delete_whole_segments_only(patch: pytest.MonkeyPatch) -> None:
    """DeleteRecords moves the log start offset to the end of a segment."""
    delete = UnifiedLog.delete_records_before

    def to_its_end(self: UnifiedLog, offset: int) -> None:
        delete(self, next((base for base in self.bases if base >= offset), offset))

    patch.setattr(UnifiedLog, "delete_records_before", to_its_end)


LOSSES = frozenset({"LeaderHasAllCommitted", "CommittedPrefixAgrees", "NoAckedRecordIsLost"})

PLANTED = (
    Planted(
        "skip the epoch check",
        skip_the_epoch_check,
        frozenset({"LeaderEpochRises", "OneLeaderPerEpoch"}) | LOSSES,
        # Controllers change often, and late requests of the last one arrive: 12 of 16 seeds show
        # it.
        {"loss": 1.0, "expire": 2.0},
        fault_pause_s=0.2,
    ),
    Planted(
        "ack before the high watermark",
        ack_before_the_high_watermark,
        frozenset({"AckedIsCommitted"}),
        {"slow": 1.0},
    ),
    Planted(
        "truncate to the high watermark",
        truncate_to_the_high_watermark,
        LOSSES,
        {"kill": 1.0, "stall": 0.3},
        supervised=1.0,
        down_s=(0.03, 0.5),
        fault_pause_s=0.25,  # two leaders die in a row: 7 of 12 seeds show it, 1 of 12 at 0.7
    ),
    Planted(
        "delete the registration by path",
        delete_the_registration_by_path,
        frozenset({"RegistrationLivesWithItsSession"}),
        {"kill": 1.0, "slow": 1.0},
        supervised=1.0,
        down_s=(0.03, 0.3),
        first_seed=1,
    ),
    Planted(
        "let an unknown directory lead",
        let_an_unknown_directory_lead,
        frozenset({"EmptyDiskNeverLeads"}),
        {"wipe": 1.0, "kill": 0.7},
        first_seed=6,
    ),
    Planted(
        "forget removals at a failover",
        forget_removals_at_a_failover,
        frozenset({"MetadataConverges"}),
        {"slow": 1.0},
        is_administered=True,
    ),
    *(
        Planted(
            name,
            plant,
            frozenset({"NothingElseIsDeleted"}),
            {"kill": 1.0},
            kind=Deleting,
            configs={"segment.bytes": "900", **configs},
            properties={"log.retention.check.interval.ms": "1500"},
            first_seed=first,
        )
        for name, plant, configs, first in (
            ("retain a segment too few", retain_a_segment_too_few, {"retention.bytes": "4000"}, 5),
            ("delete the segment of the start", delete_the_segment_of_the_start, {}, 0),
            ("delete whole segments only", delete_whole_segments_only, {}, 0),
        )
    ),
)
