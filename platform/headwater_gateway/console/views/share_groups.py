"""The share groups (KIP-932): members, start offsets and lag, and their changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.errors import kafka_error
from headwater.client.share_group_values import ShareGroupDescription, SharePartitionOffset
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell, is_part
from headwater_gateway.console.shown import counted
from headwater_gateway.console.views.group_offsets import (
    check_no_members,
    wanted_offsets,
    wanted_partitions,
)
from headwater_gateway.console.views.topic_writes import raise_first

DEAD = "Dead"
COLUMNS = (
    Column("name", "Share group", lambda r: r.group_id),
    Column("state", "State", lambda r: r.state),
)


class Row(NamedTuple):
    """A share partition: where it begins, what is left, and which members read it."""

    partition: TopicPartition
    at: SharePartitionOffset
    readers: int


def routes(shell: Shell) -> list[Route]:
    """The routes of these views."""
    pages = ShareGroupPages(shell)
    return [
        shell.view("/share-groups", pages.show_all),
        shell.view("/share-group", pages.show),
        *shell.write("/share-group/offsets", pages.offsets),
        *shell.write("/share-group/forget", pages.forget),
        *shell.write("/share-group/delete", pages.delete),
    ]


class ShareGroupPages:
    """The list, one share group, and the plans about it."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def show_all(self, request: Request) -> Response:
        """All share groups."""
        admin = self._shell.clients(request).admin
        rows: list[Any] = []
        is_known = True
        try:
            rows = await admin.list_share_groups()
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            is_known = False
        query = {k: request.query_params.get(k, "") for k in ("q", "sort")}
        found = listing(
            *(("share-groups",), query, rows, COLUMNS, lambda r: f"{r.group_id} {r.state}"),
            is_whole=is_part(request),
        )
        return self._shell.page(request, "share_groups.html", list=found, is_known=is_known)

    async def show(self, request: Request) -> Response:
        """One share group."""
        name = request.query_params.get("id", "")
        admin = self._shell.clients(request).admin
        group = await _described(admin, name)
        offsets = await admin.list_share_group_offsets(name)
        readers = Counter(tp for member in group.members for tp in member.assignment)
        rows = [Row(tp, at, readers[tp]) for tp, at in sorted(offsets.items())]
        lags = [row.at.lag for row in rows]
        lag = None if None in lags else sum(lag or 0 for lag in lags)
        return self._shell.page(request, "share_group.html", group=group, partitions=rows, lag=lag)

    async def offsets(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Let the group begin elsewhere."""
        group, given = request.query_params.get("id", ""), Fields(fields)
        clients = self._shell.clients(request)
        admin = clients.admin
        check_no_members("share group", await _described(admin, group))
        before = await _starts(admin, group)
        targets = await wanted_offsets(
            clients, given, await wanted_partitions(admin, given, before)
        )

        async def apply(_secrets: Mapping[str, str]) -> str:
            raise_first(await admin.alter_share_group_offsets(group, targets))
            return f"{counted(len(targets), 'start offset')} of share group {group} set."

        changes = tuple(
            Change(f"{tp.topic}-{tp.partition}", _text(before.get(tp)), str(offset))
            for tp, offset in sorted(targets.items())
            if before.get(tp) != offset
        )
        return Plan(
            f"Set start offsets of share group {group}",
            changes,
            [sorted(before.items()), sorted(targets.items())],
            apply,
            _page(group),
            warnings=("What was accepted behind a new start offset is delivered again.",),
        )

    async def forget(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Delete the deliveries of a topic."""
        group, topic = request.query_params.get("id", ""), Fields(fields).text("topic")
        admin = self._shell.clients(request).admin
        check_no_members("share group", await _described(admin, group))
        rows = {tp: at for tp, at in (await _starts(admin, group)).items() if tp.topic == topic}
        if not rows:
            raise UsageError(f"share group {group!r} has no offsets of topic {topic!r}")

        async def apply(_secrets: Mapping[str, str]) -> str:
            raise_first(await admin.delete_share_group_offsets(group, [topic]))
            return f"Share group {group} has forgotten {topic}."

        changes = tuple(
            Change(f"{tp.topic}-{tp.partition}", str(at), None) for tp, at in sorted(rows.items())
        )
        return Plan(
            f"Delete the offsets of {topic} in share group {group}",
            changes,
            sorted(rows.items()),
            apply,
            _page(group),
            warnings=("It begins anew there, where share.auto.offset.reset says.",),
            is_dangerous=True,
        )

    async def delete(self, request: Request, _fields: Mapping[str, str]) -> Plan:
        """Delete the group with its deliveries."""
        group = request.query_params.get("id", "")
        admin = self._shell.clients(request).admin
        check_no_members("share group", await _described(admin, group))
        before = await _starts(admin, group)

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.delete_groups([group])
            return f"Share group {group} is deleted."

        counts = counted(len(before), "share partition")
        return Plan(
            f"Delete share group {group}",
            (Change(f"share group {group}", counts, None),),
            sorted(before.items()),
            apply,
            address("share-groups"),
            warnings=("Records that nobody has accepted yet are delivered to none.",),
            is_dangerous=True,
        )


async def _described(admin: Any, name: str) -> ShareGroupDescription:
    found: ShareGroupDescription | None = None
    if name:
        found = (await admin.describe_share_groups([name]))[name]
    if found is None or found.state == DEAD:
        problem = f"there is no share group {name!r}: Share groups, on the left, lists all"
        raise kafka_error(ErrorCode.GROUP_ID_NOT_FOUND, problem)
    return found


async def _starts(admin: Any, group: str) -> dict[TopicPartition, int]:
    offsets = await admin.list_share_group_offsets(group)
    return {tp: at.start_offset for tp, at in offsets.items()}


def _text(offset: int | None) -> str | None:
    return None if offset is None else str(offset)


def _page(group: str) -> str:
    return address("share-group", id=group)
