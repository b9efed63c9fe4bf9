"""The offsets that the form of a group or share group names: which partitions, and to where."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from headwater import Admin
from headwater.client.admin.client import EARLIEST, LATEST
from headwater.client.share_group_values import ShareGroupDescription
from headwater.client.values import GroupDescription, TopicPartition
from headwater.errors import UsageError
from headwater_gateway.app.parts import Clients
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.shown import counted
from headwater_tier.table_location import locate
from headwater_tier.versions import ends_at

TARGETS = ("earliest", "latest", "timestamp", "offset", "version")
CLIENT_ID = "headwater-console"


def check_no_members(kind: str, group: GroupDescription | ShareGroupDescription) -> None:
    """Raises UsageError when a group, or a share group, has members."""
    members = group.members
    if members:
        names = ", ".join(sorted({m.client_id for m in members})[:3])
        raise UsageError(
            f"{kind} {group.group_id!r} has {counted(len(members), 'member')} ({names}): stop its"
            " consumers first"
        )


async def wanted_partitions(
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


async def wanted_offsets(
    clients: Clients, given: Fields, wanted: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset of each partition, for the form's fields `to` and `value`."""
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
