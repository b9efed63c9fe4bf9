"""A shard of consumer groups driven by hand, and members that behave as a client does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from headwater_broker.coordinator.common.shard import Decisions, Now, each
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.collaborators import Collaborators
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.heartbeat_request import Heartbeat
from headwater_broker.coordinator.group.consumer.member import ConsumerMember
from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.group.consumer.patterns import RegexJob
from headwater_broker.coordinator.group.consumer.subscriptions import KnownTopic
from headwater_broker.coordinator.group.consumer.target import TargetJob
from headwater_broker.coordinator.group.offset_commands import OffsetCommit
from headwater_broker.coordinator.group.offsets import Commit
from headwater_broker.coordinator.group.shard import GroupShard
from headwater_broker.metadata.group_settings import GroupSettings

GROUP = "g"
START_MS = 1_700_000_000_000
SESSION_MS = 45_000
INTERVAL_MS = 1_000
A, B = UUID(int=1), UUID(int=2)
Partitions = Mapping[UUID, frozenset[int]]


class World:
    """Implements `Topics`."""

    def __init__(self, **partitions: int) -> None:
        self.topics: dict[str, KnownTopic] = {}
        for name, count in partitions.items():
            self.put(name, count)

    def put(self, name: str, count: int, topic_id: UUID | None = None) -> None:
        known = self.topics.get(name)
        number = UUID(int=ord(name[0]) - ord("a") + 1)
        own = known.topic_id if known else number
        self.topics[name] = KnownTopic(name, topic_id or own, count)

    def by_name(self, name: str) -> KnownTopic | None:
        return self.topics.get(name)

    def by_id(self, topic_id: UUID) -> KnownTopic | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def names(self) -> list[str]:
        return list(self.topics)

    def racks(self, topic_id: UUID) -> tuple[frozenset[str], ...]:
        return ()


class ConsumerMachine:
    """What `common.runtime` does, without a log: records are replayed at once and kept."""

    def __init__(self, world: World | None = None, **config: int) -> None:
        self.world = world or World(a=4)
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **config})
        self.settings = GroupSettings()
        self.meters = ConsumerGroupMeters()
        self.jobs: list[TargetJob] = []
        self.regex_jobs: list[RegexJob] = []
        self.shard = self.new_shard()
        self.records: list[tuple[bytes, bytes | None]] = []
        self.batches: list[int] = []
        """Records of each decision that had some."""
        self.replies: dict[int, Any] = {}
        self.elapsed_ms = 0
        self.is_rejecting = False
        """No record is appended: too few replicas are in sync."""
        self._token = 0

    def new_shard(self) -> GroupShard:
        around = Collaborators(
            self.world,
            self.meters,
            lambda _group_id: self.settings,
            self.jobs.append,
            self.regex_jobs.append,
        )
        return GroupShard(self.config, around)

    @property
    def now(self) -> Now:
        return Now(START_MS + self.elapsed_ms, float(self.elapsed_ms))

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def classic(self) -> Group:
        group = self.shard.groups[GROUP]
        assert isinstance(group, Group)
        return group

    def member(self, member_id: str) -> ConsumerMember:
        return self.group.members[member_id]

    def run(self, command: Callable[[Now, int], Decisions]) -> int:
        """Run a command; its token."""
        self._token += 1
        try:
            self._take(command(self.now, self._token))
        except KafkaError as error:
            self.replies[self._token] = error.code
        return self._token

    def ask(self, command: Callable[[Now, int], Decisions]) -> Any:
        """Run a command; its reply, or its error's code."""
        return self.replies[self.run(command)]

    def pass_ms(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.elapsed_ms + ms
        while (at := self.shard.next_deadline_ms()) is not None and at <= end:
            self.elapsed_ms = max(self.elapsed_ms, int(at))
            self._take(self.shard.tick(self.now))
        self.elapsed_ms = end
        self.check()

    def restart(self) -> None:
        """Another coordinator loads the last record of each key; all records give the same."""
        everything, self_before = self.new_shard(), self.shard.groups
        latest: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in enumerate(self.records):
            everything.replay(offset, -1, -1, key, value)
            latest.pop(key, None)
            latest[key] = offset, value
        for group_id, group in self_before.items():
            if isinstance(group, ConsumerGroup):  # classic ones know more than their records
                assert everything.groups[group_id] == group, "the live state is what replay makes"
        assert everything.groups.keys() == self_before.keys()
        self.shard = self.new_shard()
        for key, (offset, value) in latest.items():
            self.shard.replay(offset, -1, -1, key, value)
        assert self.shard.groups == everything.groups
        self.shard.loaded(self.now)

    def check(self) -> None:
        """No partition is held twice, and the index of holders is right."""
        for group in self.shard.groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            holders: dict[UUID, dict[int, str]] = {}
            for member in group.members.values():
                for owned in (member.assigned, member.revoking):
                    for topic_id, partitions in owned.items():
                        for partition in partitions:
                            rows = holders.setdefault(topic_id, {})
                            assert partition not in rows, "two holders"
                            rows[partition] = member.member_id
            assert holders == group.holders
            done = sum(m.is_reconciled_to(group.target_epoch) for m in group.members.values())
            assert done == group.reconciled

    def _take(self, decisions: Decisions) -> None:
        for decision in each(decisions):
            if decision.records and self.is_rejecting:
                continue
            if decision.records:
                self.batches.append(len(decision.records))
            for key, value in decision.records:
                self.shard.replay(len(self.records), -1, -1, key, value)
                self.records.append((key, value))
            answers = decision.replies + decision.leader_replies + decision.confirmations
            for token, reply in answers:
                assert token not in self.replies, "answered twice"
                self.replies[token] = reply
        self.check()

    # -- events

    def heartbeat(self, member_id: str, epoch: int, **more: Any) -> Any:
        """A ConsumerGroupHeartbeat; the response, or the error's code."""
        ask = Heartbeat(group_id=GROUP, member_id=member_id, epoch=epoch, **more)
        return self.ask(lambda now, token: self.shard.consumers.heartbeat(ask, now, token))

    def join(self, member_id: str, *topics: str, **more: Any) -> Any:
        """A member's first heartbeat."""
        values: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "topics": frozenset(topics or ("a",)),
            "owned": {},
            **more,
        }
        return self.heartbeat(member_id, 0, **values)

    def topic_changed(self, name: str, count: int | None, topic_id: UUID | None = None) -> None:
        """The topic has so many partitions now; None: it was deleted."""
        if count is None:
            del self.world.topics[name]
        else:
            self.world.put(name, count, topic_id)
        self.shard.consumers.topics_changed(frozenset({name}), frozenset({name}))

    def resolve(self) -> int:
        """The pool resolves the patterns; how many jobs it had."""
        count = len(self.regex_jobs)
        while self.regex_jobs:
            self.bring_topics(self.regex_jobs.pop(0))
        return count

    def bring_topics(self, job: RegexJob) -> None:
        """The answer of one job reaches the shard."""
        found = {
            pattern: frozenset(filter(job.may_describe, names))
            for pattern, names in job.run().items()
        }
        self.run(lambda now, t: self.shard.consumers.regexes_resolved(job, found, now, t))

    def compute(self) -> None:
        """The worker does its jobs."""
        while self.jobs:
            self.bring(self.jobs.pop(0))

    def bring(self, job: TargetJob) -> None:
        """The answer of one job reaches the shard."""
        found = job.run()
        self.run(lambda now, t: self.shard.consumers.target_computed(job, found, now, t))

    def commit(self, member_id: str, epoch: int, *keys: tuple[str, int], version: int = 9) -> Any:
        """An OffsetCommit; the codes, or the request's."""
        keys = keys or (("a", 0),)
        ask = OffsetCommit(
            group_id=GROUP,
            generation=epoch,
            member_id=member_id,
            instance_id=None,
            retention_ms=-1,
            rows=tuple(Commit(topic, partition, 5, -1, "") for topic, partition in keys),
            version=version,
        )
        reply = self.ask(lambda now, token: self.shard.offsets.commit(ask, now, token))
        return [reply[key] for key in keys] if isinstance(reply, dict) else reply


@dataclass
class Client:
    """A consumer: it heartbeats, gives up what it is told to at once, takes what it is given."""

    machine: ConsumerMachine
    member_id: str
    topics: frozenset[str] = frozenset({"a"})
    instance_id: str | None = None
    epoch: int = 0
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    said: dict[UUID, frozenset[int]] | None = None
    """What it said last that it owns."""
    interval_ms: int = 0

    def beat(self) -> Any:
        """One heartbeat; a second one at once when it gave partitions up."""
        reply = self._send()
        if isinstance(reply, ConsumerGroupHeartbeatResponse) and self.said != self.owned:
            return self._send()
        return reply

    def _send(self) -> Any:
        is_join = self.epoch == 0
        owned = self.owned if is_join or self.said != self.owned else None
        reply = self.machine.heartbeat(
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if is_join else -1,
            topics=self.topics if is_join else None,
            owned=owned,
        )
        if isinstance(reply, ErrorCode):
            return reply
        self.said = dict(self.owned)
        self.take(reply)
        return reply

    def take(self, reply: ConsumerGroupHeartbeatResponse) -> None:
        """What a client does with the reply."""
        self.epoch, self.interval_ms = reply.member_epoch, reply.heartbeat_interval_ms
        if reply.assignment is not None:
            rows = reply.assignment.topic_partitions
            self.owned = {row.topic_id: frozenset(row.partitions) for row in rows}

    def again(self) -> Client:
        """The same process with nothing in its hands."""
        return replace(self, epoch=0, owned={}, said=None)


def settle(machine: ConsumerMachine, clients: Iterable[Client], rounds: int = 40) -> int:
    """Let the clients heartbeat every half second until nothing changes; rounds that it took."""
    for number in range(rounds):
        if machine.group.state.value == "Stable" and all(
            c.epoch == machine.group.epoch for c in clients
        ):
            return number
        for client in clients:
            client.beat()
        machine.pass_ms(500)
    raise AssertionError(f"not settled: {machine.group}")


def numbers(partitions: Mapping[UUID, Iterable[int]]) -> dict[int, list[int]]:
    """Short to compare: topic number -> sorted partitions."""
    return {topic_id.int: sorted(rows) for topic_id, rows in partitions.items()}
