"""The requests and deadlines of committed offsets, for groups of every kind that has some. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.expiration_sweep import ExpirationSweep
from headwater_broker.coordinator.common.shard import Decision, Decisions, Now, Producer, Token
from headwater_broker.coordinator.group import offsets
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.groups import ClassicGroups
from headwater_broker.coordinator.group.config import EXPIRY_GROUPS_PER_TICK
from headwater_broker.coordinator.group.consumer.commits import EpochChecks
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.group_kind import GroupKind
from headwater_broker.coordinator.group.offset_expiration import expired
from headwater_broker.coordinator.group.offsets import Commit
from headwater_broker.coordinator.group.records import TopicPartition, offset_record
from headwater_broker.coordinator.group.table import AnyGroup, GroupRules, GroupTable
from headwater_broker.coordinator.group.transaction_verification import Verification, Verifications

CONSUMER_OFFSETS_SINCE = 9
"""OffsetCommit and OffsetFetch carry member epochs from this version on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """An OffsetCommit request; generation -1: a consumer without group membership, or a tool."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    rows: tuple[Commit, ...]
    version: int = CONSUMER_OFFSETS_SINCE
    """Of the request."""


class TransactionalCommit(NamedTuple):
    """A TxnOffsetCommit request; generation -1 and no member id: the membership is not checked."""

    group_id: str
    transactional_id: str
    producer: Producer
    is_enlisting: bool
    """True: the group coordinator adds its partition to the transaction (transaction version 2,
    TxnOffsetCommit v5+); false: the client has added it, which is only verified."""
    rows: tuple[Commit, ...]
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    connection: int = 0
    """Number of the connection that the request came on."""


class OffsetCommands:
    """Commit, fetch, delete, expire."""

    def __init__(
        self,
        table: GroupTable,
        classic: ClassicGroups,
        epochs: EpochChecks,
        rules: Mapping[GroupKind, GroupRules],
    ) -> None:
        self._table = table
        self._classic = classic
        self._epochs = epochs
        self._rules = rules
        self._verifications = Verifications()
        self._sweep = ExpirationSweep(
            EXPIRY_GROUPS_PER_TICK, table.config.offsets_check_interval_ms
        )

    # -- commit

    def commit(self, request: OffsetCommit, now: Now, token: Token) -> Decisions:
        """The reply is a code per (topic, partition). Raises KafkaError for the whole request.

        The offsets of a large commit are appended in several batches: each is right by itself.
        """
        unknown = ErrorCode.GROUP_ID_NOT_FOUND
        if request.version < CONSUMER_OFFSETS_SINCE:  # clients do not know the code (KIP-848)
            unknown = ErrorCode.ILLEGAL_GENERATION
        group = self._committed_group(request.group_id, request.generation, unknown)
        refused: dict[TopicPartition, ErrorCode] = {}
        if isinstance(group, ConsumerGroup):
            keys = [(row.topic, row.partition) for row in request.rows]
            refused = self._epochs.check_commit(
                group,
                request.generation,
                request.member_id,
                keys,
                now,
                has_epochs=request.version >= CONSUMER_OFFSETS_SINCE,
            )
        elif isinstance(group, Group):
            self._classic.generations.check_commit(
                group, request.generation, request.member_id, request.instance_id, now
            )
        return self._append(request.group_id, request.rows, refused, request.retention_ms, now)(
            Decision(), token
        )

    def _append(
        self,
        group_id: str,
        rows: Iterable[Commit],
        refused: Mapping[TopicPartition, ErrorCode],
        retention_ms: int,
        now: Now,
    ) -> Callable[[Decision, Token], Decisions]:
        wanted = [row for row in rows if (row.topic, row.partition) not in refused]
        config, decided = self._table.config, self._table.decided_offsets
        records, codes = offsets.commit(group_id, wanted, retention_ms, now, config, decided)

        def into(out: Decision, token: Token) -> Decisions:
            out.records += records
            return out.confirm(token, {**codes, **refused}).split()

        return into

    def _committed_group(
        self,
        group_id: str,
        generation: int,
        unknown: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND,
    ) -> AnyGroup | None:
        """The group that offsets are committed for; None: not known, so the committer is no member.

        Raises `unknown` for one that says it is, GROUP_ID_NOT_FOUND for a group without offsets.
        """
        group = self._table.groups.get(group_id)
        if group is None and generation >= 0:
            raise KafkaError(unknown, f"group {group_id!r} is not known")
        if group is not None and not isinstance(group, Group | ConsumerGroup):
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"group {group_id!r} is a {group.kind.value} group, which commits no offsets",
            )
        return group

    # -- offsets of transactions

    def transaction_ended(self, producer_id: int, producer_epoch: int) -> None:
        """A marker was replayed."""
        self._verifications.transaction_ended(producer_id, producer_epoch)

    def begin_verification(self, request: TransactionalCommit) -> Verification:
        """A TxnOffsetCommit begins; `end_verification` must follow."""
        is_open = self._table.pending_offsets.is_open(request.producer)
        return self._verifications.begin(request.producer, request.connection, is_open=is_open)

    def end_verification(self, verification: Verification) -> None:
        """The TxnOffsetCommit is answered."""
        self._verifications.end(verification)

    def transactional_commit(
        self, request: TransactionalCommit, verification: Verification, now: Now, token: Token
    ) -> Decisions:
        """TxnOffsetCommit of a verified producer. The reply is a code per (topic, partition), or
        None when the verification is stale. Raises KafkaError for the whole request."""
        self._verifications.check(verification)
        if verification.is_stale:
            return Decision().reply(token, None)
        group = self._committed_group(request.group_id, request.generation)
        refused: dict[TopicPartition, ErrorCode] = {}
        if isinstance(group, ConsumerGroup):
            keys = [(row.topic, row.partition) for row in request.rows]
            refused = self._epochs.check_transactional_commit(
                group, request.generation, request.member_id, request.instance_id, keys
            )
        elif isinstance(group, Group):
            self._classic.generations.check_transactional_commit(
                group, request.generation, request.member_id, request.instance_id
            )
        self._verifications.committed(verification)
        return self._append(request.group_id, request.rows, refused, -1, now)(
            Decision(request.producer), token
        )

    # -- fetch and delete

    def fetch(
        self,
        group_id: str,
        wanted: tuple[TopicPartition, ...] | None,
        _now: Now,
        token: Token,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Decision:
        """The reply is a dict of Committed by (topic, partition). `require_stable` (KIP-447): no
        offset that an open transaction may change, and none of a deposed coordinator: a worker
        would copy once more what a transaction has copied already.

        Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH for a member of a consumer group that is not
        where it says.
        """
        group, out = self._table.groups.get(group_id), Decision()
        if isinstance(group, ConsumerGroup):
            self._epochs.check_fetch(group, member_id, member_epoch)
        if not require_stable:
            return out.reply(token, offsets.fetch(group, wanted))
        unstable = self._table.pending(group_id)
        return out.reply_as_leader(token, offsets.fetch(group, wanted, unstable))

    def delete_offsets(
        self, group_id: str, wanted: Iterable[TopicPartition], _now: Now, token: Token
    ) -> Decisions:
        """The reply is a code per (topic, partition). Raises KafkaError."""
        group = self._table.groups.get(group_id)
        if group is None or group.kind is GroupKind.SHARE:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id!r} with offsets")
        out = Decision()
        records, codes = offsets.delete(group, wanted, self._table.pending(group_id))
        out.records += records
        return out.confirm(token, codes).split()

    def topics_deleted(self, topics: frozenset[str], _now: Now, token: Token) -> Decisions:
        """Tombstones for the offsets of deleted topics: a later topic of that name starts anew."""
        out = Decision()
        for group in self._table.groups.values():
            pending = self._table.pending(group.group_id)
            out.records += offsets.tombstones(group, topics, pending)
        return out.confirm(token, len(out.records)).split()

    # -- expiry

    @property
    def wait_ms(self) -> int:
        """How long until the next part of the groups is searched for expired offsets."""
        return self._sweep.wait_ms

    def expire(self, now: Now) -> list[Decision]:
        """Tombstones for expired offsets, and for groups that have none left: of some groups at a
        time, so that no tick is long."""
        out = Decision()
        for name in self._sweep.next_part(self._table.groups):
            group = self._table.groups.get(name)
            if group is None or group.kind is GroupKind.SHARE:
                continue
            pending = self._table.pending(name)
            old = expired(group, now, self._table.config, pending)
            out.records += [offset_record(name, topic, index, None) for topic, index in old]
            is_over = len(old) == len(group.offsets) and group.is_empty and not pending
            if is_over and not (isinstance(group, Group) and group.pending_members):
                out.records += self._rules[group.kind].tombstones(group)
        return out.split()
