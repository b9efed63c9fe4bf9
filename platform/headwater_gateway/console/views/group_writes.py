"""Changes of a group from its page: its offsets, and its deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from headwater import Admin
from headwater.client.admin.client import EARLIEST, LATEST
from headwater.client.values import TopicPartition
from headwater.errors import UsageError
from headwater_gateway.app.parts import Clients
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell
from headwater_gateway.console.shown import counted
from headwater_gateway.console.views.topic_writes import raise_first
from headwater_tier.locate import locate
from headwater_tier.versions import ends_at

TARGETS = ("earliest", "latest", "timestamp", "offset", "version")
CLIENT_ID = "headwater-console"


class GroupWrites:
    """The plans about one group."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def routes(self) -> list[Route]:
        """Their routes."""
        return [
            *self._shell.write("/group/offsets", self.offsets),
            *self._shell.write("/group/forget", self.forget),
            *self._shell.write("/group/delete", self.delete),
        ]

    async def offsets(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Set committed offsets."""
        group, given = request.query_params.get("id", ""), Fields(fields)
        clients = self._shell.clients(request)
        admin = clients.admin
        await _check_empty(admin, group)
        committed = {tp: at.offset for tp, at in (await admin.list_group_offsets(group)).items()}
        wanted = await _wanted(admin, given, committed)
        targets = await _targets(clients, given, wanted)

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.alter_group_offsets(group, targets)
            return f"{counted(len(targets), 'offset')} of group {group} set."

        changes = tuple(
            Change(
                f"{tp.topic}-{tp.partition}",
                str(committed[tp]) if tp in committed else None,
                str(offset),
            )
            for tp, offset in sorted(targets.items())
            if committed.get(tp) != offset
        )
        state = [sorted(committed.items()), sorted(targets.items())]
        return Plan(f"Set offsets of group {group}", changes, state, apply, _page(group))

    async def forget(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Delete the committed offsets of a topic."""
        group, topic = request.query_params.get("id", ""), Fields(fields).text("topic")
        admin = self._shell.clients(request).admin
        offsets = await admin.list_group_offsets(group)
        rows = {tp: at.offset for tp, at in offsets.items() if tp.topic == topic}
        if not rows:
            raise UsageError(f"group {group!r} has no offsets of topic {topic!r}")

        async def apply(_secrets: Mapping[str, str]) -> str:
            raise_first(await admin.delete_group_offsets(group, list(rows)))
            return f"The offsets of {topic} are gone from group {group}."

        changes = tuple(
            Change(f"{tp.topic}-{tp.partition}", str(offset), None)
            for tp, offset in sorted(rows.items())
        )
        return Plan(
            f"Delete the offsets of {topic} in group {group}",
            changes,
            sorted(rows.items()),
            apply,
            _page(group),
            is_dangerous=True,
        )

    async def delete(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Delete the group with its offsets."""
        group = request.query_params.get("id", "")
        admin = self._shell.clients(request).admin
        await _check_empty(admin, group)
        offsets = await admin.list_group_offsets(group)

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.delete_groups([group])
            return f"Group {group} is deleted."

        state = sorted((tp, at.offset) for tp, at in offsets.items())
        return Plan(
            f"Delete group {group}",
            (Change(f"group {group}", counted(len(offsets), "committed offset"), None),),
            state,
            apply,
            address("groups"),
            warnings=("Its consumers will start where auto.offset.reset says.",),
            is_dangerous=True,
        )


async def _check_empty(admin: Any, group: str) -> None:
    members = (await admin.describe_groups([group]))[group].members
    if members:
        names = ", ".join(sorted({m.client_id for m in members})[:3])
        raise UsageError(
            f"group {group!r} has {counted(len(members), 'member')} ({names}): stop its consumers"
            " first"
        )


async def _wanted(
    admin: Any, given: Fields, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """The partitions that the form names: of one topic, or all that the group has committed."""
    topic, chosen = given.optional("topic"), given.numbers("partitions")
    if topic is None:
        rows = sorted(committed)
    else:
        described = (await admin.describe_topics([topic], patient=False))[topic]
        rows = [TopicPartition(topic, p.partition) for p in described.partitions]
    found = [tp for tp in rows if not chosen or tp.partition in chosen]
    missing = sorted(set(chosen) - {tp.partition for tp in rows})
    if missing or not found:
        raise UsageError(f"partitions {missing or chosen}: there are none such; leave it empty")
    return found


async def _targets(
    clients: Clients, given: Fields, wanted: list[TopicPartition]
) -> dict[TopicPartition, int]:
    kind = given.one_of("to", *TARGETS)
    admin = clients.admin
    starts = {tp: at.offset for tp, at in (await admin.list_offsets(_at(wanted, EARLIEST))).items()}
    ends = {tp: at.offset for tp, at in (await admin.list_offsets(_at(wanted, LATEST))).items()}
    if kind == "earliest":
        return starts
    if kind == "latest":
        return ends
    if kind == "timestamp":
        found = await admin.list_offsets(_at(wanted, given.moment_ms("value")))
        # -1: no record is that new.
        return {tp: at.offset if at.offset >= 0 else ends[tp] for tp, at in found.items()}
    if kind == "offset":
        offset = given.number("value")
        return {tp: min(max(offset, starts[tp]), ends[tp]) for tp in wanted}
    return await _at_version(clients, given, wanted)


async def _at_version(
    clients: Clients, given: Fields, wanted: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where a version of the topic's Delta table ends: a reader goes on where the table stops."""
    (topic, *others) = {tp.topic for tp in wanted}
    if others:
        raise UsageError("a version is of one topic's table: choose the topic")
    text = given.text("value").strip()
    at = int(text) if text.isascii() and text.isdigit() else _moment(given)
    ends = await asyncio.to_thread(table_ends, clients, topic, at)
    return {tp: ends.get(tp.partition, 0) for tp in wanted}


def _moment(given: Fields) -> datetime:
    return datetime.fromtimestamp(given.moment_ms("value") / 1000, UTC)


def table_ends(clients: Clients, topic: str, at: int | datetime) -> Mapping[int, int]:
    """Up to which offset a version of a topic's table reaches, by partition. Blocking."""
    with Admin(clients.servers, client_id=CLIENT_ID, **clients.options) as admin:
        return ends_at(locate(admin, topic), at)[1]


def _at(wanted: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
    return dict.fromkeys(wanted, at)


def _page(group: str) -> str:
    return address("group", id=group)
