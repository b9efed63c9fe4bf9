"""The requests of groups whose offsets transactions commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from differential.coordinator_steps import CommitOffset
from differential.session import Answer, Session, Step, name_of
from headwater.errors import ErrorCode
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k11_join_group as k11
from headwater.wire.apis import k14_sync_group as k14
from headwater.wire.apis import k16_list_groups as k16
from headwater.wire.apis import k42_delete_groups as k42
from headwater.wire.apis import k47_offset_delete as k47

SESSION_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class Join(Step):
    """A member joins an empty group and takes everything: a stable group of one."""

    group: str = "g"
    instance: str | None = None

    def ask(self, session: Session) -> Answer:
        group_id = session.transactional_id(self.group)
        join = k11.JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=(k11.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0"),),
        )
        version = 3 if self.instance is None else 5  # v4: the member would have to join again
        joined = session.exchange.ask(join, k11.JoinGroupResponse, version)
        if joined.error_code:
            return name_of(joined.error_code)
        assignment = k14.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        sync = k14.SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.instance,
            assignments=(assignment,),
        )
        synced = session.exchange.ask(sync, k14.SyncGroupResponse, 3)
        session.members[self.group] = joined.member_id, joined.generation_id
        return [name_of(synced.error_code), joined.generation_id]


@dataclass(frozen=True, kw_only=True)
class MemberCommit(CommitOffset):
    """TxnOffsetCommit of the group's member; `generation` is added to the member's."""

    generation: int = 0
    is_other: bool = False
    """True: with a member id that the group does not know."""

    def ask(self, session: Session) -> Answer:
        member_id, generation = session.members[self.group]
        fields = {name: getattr(self, name) for name in CommitOffset.__dataclass_fields__}
        plain = CommitOffset(**fields)
        return replace(
            plain,
            member="other" if self.is_other else member_id,
            generation=generation + self.generation,
        ).ask(session)


@dataclass(frozen=True, kw_only=True)
class Offsets(Step):
    """OffsetFetch of all offsets of a group."""

    group: str = "g"
    stable: bool = False
    version: int = 8

    def ask(self, session: Session) -> Answer:
        group_id = session.transactional_id(self.group)
        if self.version >= 8:
            group = k09.OffsetFetchRequestGroup(group_id=group_id, topics=None)
            request = k09.OffsetFetchRequest(groups=(group,), require_stable=self.stable)
        else:
            request = k09.OffsetFetchRequest(
                group_id=group_id, topics=None, require_stable=self.stable
            )
        reply = session.exchange.ask(request, k09.OffsetFetchResponse, self.version)
        found = reply.groups[0] if self.version >= 8 else reply
        return {
            "error": name_of(found.error_code),
            "offsets": {
                f"{row.partition_index}": [name_of(row.error_code), row.committed_offset]
                for topic in found.topics
                for row in topic.partitions
            },
        }


@dataclass(frozen=True, kw_only=True)
class Groups(Step):
    """ListGroups, of this case's groups."""

    def ask(self, session: Session) -> Answer:
        reply = session.exchange.ask(k16.ListGroupsRequest(), k16.ListGroupsResponse, 5)
        return sorted(
            f"{session.short(row.group_id)} {row.group_state} '{row.protocol_type}'"
            for row in reply.groups
            if row.group_id.startswith(f"{session.name}.")
        )


@dataclass(frozen=True, kw_only=True)
class DeleteGroup(Step):
    """DeleteGroups of one group."""

    group: str = "g"

    def ask(self, session: Session) -> Answer:
        request = k42.DeleteGroupsRequest(groups_names=(session.transactional_id(self.group),))
        reply = session.exchange.ask(request, k42.DeleteGroupsResponse, 2)
        return name_of(reply.results[0].error_code)


@dataclass(frozen=True, kw_only=True)
class DeleteOffset(Step):
    """OffsetDelete of one partition."""

    group: str = "g"
    partition: int = 0

    def ask(self, session: Session) -> Answer:
        partition = k47.OffsetDeleteRequestPartition(partition_index=self.partition)
        topic = k47.OffsetDeleteRequestTopic(name=session.topic, partitions=(partition,))
        request = k47.OffsetDeleteRequest(
            group_id=session.transactional_id(self.group), topics=(topic,)
        )
        reply = session.exchange.ask(request, k47.OffsetDeleteResponse, 0)
        if reply.error_code != ErrorCode.NONE:
            return name_of(reply.error_code)
        return [name_of(row.error_code) for topic in reply.topics for row in topic.partitions]
