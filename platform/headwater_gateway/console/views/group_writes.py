"""Changes of a group from its page: its offsets, and its deletion."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.routing import Route

from headwater.errors import UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell
from headwater_gateway.console.shown import counted
from headwater_gateway.console.views.group_offsets import (
    check_no_members,
    wanted_offsets,
    wanted_partitions,
)
from headwater_gateway.console.views.topic_writes import raise_first


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
        check_no_members("group", (await admin.describe_groups([group]))[group])
        committed = {tp: at.offset for tp, at in (await admin.list_group_offsets(group)).items()}
        wanted = await wanted_partitions(admin, given, committed)
        targets = await wanted_offsets(clients, given, wanted)

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
        check_no_members("group", (await admin.describe_groups([group]))[group])
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


def _page(group: str) -> str:
    return address("group", id=group)
