"""A shard driven by hand: each call is an event, each reply is collected by its token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.errors import KafkaError
from headwater.wire.apis.k13_leave_group import MemberIdentity
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headwater_broker.coordinator.common.shard import Decisions, Now, Producer, each
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.rebalance import MemberJoin
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.offset_commands import OffsetCommit, TransactionalCommit
from headwater_broker.coordinator.group.offsets import Commit, Committed
from headwater_broker.coordinator.group.shard import GroupShard

GROUP = "g"
START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Machine:
    """What `common.runtime` does, without a log: records are replayed at once and kept."""

    def __init__(self, **config: int) -> None:
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **config})
        self.shard = GroupShard(self.config)
        self.records: list[tuple[bytes, bytes | None]] = []
        self.replies: dict[int, Any] = {}
        self.refuse_appends = False
        self.elapsed_ms = 0
        self._token = 0

    @property
    def now(self) -> Now:
        return Now(START_MS + self.elapsed_ms, float(self.elapsed_ms))

    @property
    def group(self) -> Group:
        group = self.shard.groups[GROUP]
        assert isinstance(group, Group)
        return group

    def run(self, command: Callable[[Now, int], Decisions]) -> int:
        """Run a command; its token."""
        self._token += 1
        try:
            self._take(command(self.now, self._token))
        except KafkaError as error:
            self.replies[self._token] = error.code
        return self._token

    def pass_ms(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.elapsed_ms + ms
        while (at := self.shard.next_deadline_ms()) is not None and at <= end:
            self.elapsed_ms = max(self.elapsed_ms, int(at))
            self._take(self.shard.tick(self.now))
        self.elapsed_ms = end

    def restart(self) -> None:
        """Another coordinator loads the last record of each key; all records give the same."""
        everything = GroupShard(self.config)
        latest: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in enumerate(self.records):
            everything.replay(offset, -1, -1, key, value)
            latest.pop(key, None)
            latest[key] = offset, value
        self.shard = GroupShard(self.config)
        for key, (offset, value) in latest.items():
            self.shard.replay(offset, -1, -1, key, value)
        assert self.shard.groups == everything.groups
        self.shard.loaded(self.now)

    def transactional_commit(
        self,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        producer_id: int = 7,
        **more: Any,
    ) -> Any:
        """A TxnOffsetCommit of t-0 by a verified producer; its code."""
        ask = TransactionalCommit(
            group_id=GROUP,
            generation=generation,
            member_id=member_id,
            instance_id=more.get("instance_id"),
            transactional_id="app",
            producer=Producer(producer_id, 0),
            is_enlisting=True,
            rows=(Commit("t", 0, offset, -1, more.get("metadata", "")),),
        )
        verification = self.shard.offsets.begin_verification(ask)
        token = self.run(
            lambda now, t: self.shard.offsets.transactional_commit(ask, verification, now, t)
        )
        self.shard.offsets.end_verification(verification)
        reply = self.replies[token]
        return reply[("t", 0)] if isinstance(reply, dict) else reply

    def transact(self, offset: int, producer_id: int = 7) -> None:
        """A TxnOffsetCommit of t-0 that succeeds."""
        assert self.transactional_commit(offset, producer_id=producer_id) == 0

    def end_transaction(self, *, commit: bool, producer_id: int = 7) -> None:
        """A marker."""
        self.shard.replay_end_transaction(producer_id, 0, commit=commit)

    def _take(self, decisions: Decisions) -> None:
        for decision in each(decisions):
            is_written = not (decision.records and self.refuse_appends)
            if is_written:
                producer_id, epoch = decision.producer or (-1, -1)
                for key, value in decision.records:
                    self.shard.replay(len(self.records), producer_id, epoch, key, value)
                    # An offset of the log that a restart does not load.
                    self.records.append((key, value) if producer_id == -1 else (b"", None))
            answers = decision.replies + decision.leader_replies
            answers += decision.confirmations if is_written else []
            for token, reply in answers:
                assert token not in self.replies, "answered twice"
                self.replies[token] = reply

    # -- events

    def join(self, member_id: str = "", **changes: Any) -> int:
        """A JoinGroup; a new member gets the id `fresh` (default m1, m2, ...)."""
        values: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member_id,
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (("range", b"meta"),),
            "fresh_id": f"m{self._token + 1}",
            "needs_known_id": False,
            **changes,
        }
        ask = MemberJoin(**values)
        return self.run(lambda now, token: self.shard.join(ask, now, token))

    def sync(self, member_id: str, generation: int, **assignments: bytes) -> int:
        """A SyncGroup; the leader's carries the assignments."""
        ask = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in assignments.items()
            ),
        )
        return self.run(lambda now, token: self.shard.sync(ask, now, token))

    def heartbeat(self, member_id: str, generation: int) -> Any:
        token = self.run(
            lambda now, t: self.shard.heartbeat(GROUP, member_id, None, generation, now, t)
        )
        return self.replies[token]

    def leave(self, member_id: str, instance_id: str | None = None) -> Any:
        rows = (MemberIdentity(member_id=member_id, group_instance_id=instance_id),)
        token = self.run(lambda now, t: self.shard.leave(GROUP, rows, now, t))
        return self.replies[token][0].error_code

    def commit(self, offset: int, member_id: str = "", generation: int = -1, **more: Any) -> Any:
        """Commit `offset` of t-0; the code of the partition, or of the request."""
        ask = OffsetCommit(
            group_id=GROUP,
            generation=generation,
            member_id=member_id,
            instance_id=more.get("instance_id"),
            retention_ms=more.get("retention_ms", -1),
            rows=(Commit("t", 0, offset, -1, more.get("metadata", "")),),
        )
        reply = self.replies.get(self.run(lambda now, t: self.shard.offsets.commit(ask, now, t)))
        return reply[("t", 0)] if isinstance(reply, dict) else reply

    def committed(self) -> int:
        """The offset of t-0; -1 for none."""
        return int(self.fetched().offset)

    def fetched(self, *, require_stable: bool = False) -> Committed:
        """What OffsetFetch answers for t-0."""
        wanted = (("t", 0),)
        token = self.run(
            lambda now, t: self.shard.offsets.fetch(
                GROUP, wanted, now, t, require_stable=require_stable
            )
        )
        found: Committed = self.replies[token][("t", 0)]
        return found

    def stable_pair(self) -> tuple[str, str]:
        """Two members, stable in generation 2; the leader first."""
        first = self.join()
        leader = self.replies[first].member_id
        self.sync(leader, 1, **{leader: b"all"})
        second = self.join()
        again = self.join(leader)
        follower = self.replies[second].member_id
        assert self.replies[again].generation_id == 2
        waiting = self.sync(follower, 2)
        assert waiting not in self.replies
        self.sync(leader, 2, **{leader: b"one", follower: b"two"})
        assert self.replies[waiting].assignment == b"two"
        return leader, follower
