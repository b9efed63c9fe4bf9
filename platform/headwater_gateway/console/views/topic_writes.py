"""Changes of a topic from its page: partitions, replicas, leaders, records, the topic itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from headwater.client.admin.client import EARLIEST, LATEST
from headwater.client.values import PartitionDescription, TopicDescription, TopicPartition
from headwater.errors import KafkaError, UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell
from headwater_gateway.console.shown import counted


class TopicWrites:
    """The plans about one topic."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def routes(self) -> list[Route]:
        """Their routes."""
        plans = {
            "delete": self.delete,
            "partitions": self.grow,
            "empty": self.empty,
            "move": self.move,
            "elect": self.elect,
        }
        rows = [self._shell.write(f"/topics/{{topic}}/{n}", plan) for n, plan in plans.items()]
        return [route for routes in rows for route in routes]

    async def _topic(self, request: Request) -> tuple[Any, TopicDescription]:
        name = request.path_params["topic"]
        admin = self._shell.clients(request).admin
        found: dict[str, TopicDescription] = await admin.describe_topics([name], patient=False)
        return admin, found[name]

    async def delete(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Delete the topic, once its name was typed."""
        admin, topic = await self._topic(request)
        if Fields(fields).text("name") != topic.name:
            raise UsageError(f"the name typed is not {topic.name}: type it to delete the topic")
        ends = await admin.list_offsets(_all(topic, LATEST))

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.delete_topics([topic.name])
            return f"Topic {topic.name} is deleted."

        offsets = sum(at.offset for at in ends.values())
        change = Change(
            topic.name,
            f"{counted(len(topic.partitions), 'partition')}, {counted(offsets, 'offset')} written",
            None,
        )
        return Plan(
            f"Delete topic {topic.name}",
            (change,),
            [str(topic.topic_id), _offsets(ends)],
            apply,
            address("topics"),
            warnings=("Its records are deleted for good.",),
            is_dangerous=True,
        )

    async def grow(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Add partitions."""
        admin, topic = await self._topic(request)
        now = len(topic.partitions)
        wanted = Fields(fields).number("partitions", least=now + 1, most=100_000)
        await admin.create_partitions({topic.name: wanted}, validate_only=True)

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.create_partitions({topic.name: wanted})
            return f"Topic {topic.name} has {wanted} partitions."

        return Plan(
            f"Grow topic {topic.name} to {wanted} partitions",
            (Change("partitions", str(now), str(wanted)),),
            [str(topic.topic_id), now],
            apply,
            address("topics", topic.name),
            warnings=("Keys go to other partitions from then on; no topic can shrink again.",),
        )

    async def empty(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Delete records below an offset, or all."""
        admin, topic = await self._topic(request)
        given = Fields(fields)
        ends = await admin.list_offsets(_all(topic, LATEST))
        starts = await admin.list_offsets(_all(topic, EARLIEST))
        chosen = set(given.numbers("partitions")) or {p.partition for p in topic.partitions}
        before = given.number("before", default=-1)
        targets = {}
        for tp, end in ends.items():
            target = end.offset if before == -1 else min(before, end.offset)
            if tp.partition in chosen and target > starts[tp].offset:
                targets[tp] = target

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.delete_records(targets)
            return f"Records of {counted(len(targets), 'partition')} of {topic.name} are deleted."

        changes = tuple(
            Change(f"{tp.topic}-{tp.partition} log start", str(starts[tp].offset), str(target))
            for tp, target in targets.items()
        )
        return Plan(
            f"Delete records of topic {topic.name}",
            changes,
            [str(topic.topic_id), _offsets(starts), sorted(targets.items())],
            apply,
            address("topics", topic.name),
            warnings=("The records are deleted for good.",),
            is_dangerous=True,
        )

    async def move(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Move a partition to other brokers."""
        admin, topic = await self._topic(request)
        given = Fields(fields)
        partition = _partition(topic, given.number("partition"))
        wanted = given.numbers("replicas")
        live = {b.node_id for b in (await admin.describe_cluster()).brokers}
        unknown = sorted(set(wanted) - live)
        if not wanted or unknown or len(set(wanted)) < len(wanted):
            raise UsageError(
                f"replicas {given.text('replicas')!r}: give different ids of live brokers, of"
                f" {', '.join(map(str, sorted(live)))}"
            )
        tp = TopicPartition(topic.name, partition.partition)

        async def apply(_secrets: Mapping[str, str]) -> str:
            raise_first(await admin.alter_partition_reassignments({tp: wanted}))
            return f"{tp.topic}-{tp.partition} moves to {_ids(wanted)}."

        change = Change(
            f"{tp.topic}-{tp.partition} replicas", _ids(partition.replicas), _ids(wanted)
        )
        return Plan(
            f"Move {tp.topic}-{tp.partition}",
            (change,) if list(partition.replicas) != wanted else (),
            [str(topic.topic_id), partition.replicas],
            apply,
            address("moves"),
        )

    async def elect(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Make the preferred replicas leaders."""
        admin, topic = await self._topic(request)
        rows = [p for p in topic.partitions if p.replicas and p.leader != p.replicas[0]]
        rows = [p for p in rows if p.replicas[0] in p.isr]
        tps = [TopicPartition(topic.name, p.partition) for p in rows]

        async def apply(_secrets: Mapping[str, str]) -> str:
            raise_first(await admin.elect_leaders("preferred", tps))
            return f"{counted(len(tps), 'partition')} of {topic.name}: preferred leaders elected."

        changes = tuple(
            Change(f"{topic.name}-{p.partition} leader", str(p.leader), str(p.replicas[0]))
            for p in rows
        )
        return Plan(
            f"Elect preferred leaders of topic {topic.name}",
            changes,
            [[p.partition, p.leader, p.replicas] for p in rows],
            apply,
            address("topics", topic.name),
        )


def raise_first(outcomes: Mapping[Any, KafkaError | None]) -> None:
    """Raise the first error of these outcomes."""
    for error in outcomes.values():
        if error is not None:
            raise error


def _partition(topic: TopicDescription, number: int) -> PartitionDescription:
    for row in topic.partitions:
        if row.partition == number:
            return row
    raise UsageError(
        f"topic {topic.name} has no partition {number}: give 0 to {len(topic.partitions) - 1}"
    )


def _all(topic: TopicDescription, at: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic.name, p.partition): at for p in topic.partitions if p.leader >= 0}


def _offsets(found: Mapping[TopicPartition, Any]) -> list[list[int]]:
    return sorted([tp.partition, at.offset] for tp, at in found.items())


def _ids(brokers: Any) -> str:
    return ", ".join(map(str, brokers))
