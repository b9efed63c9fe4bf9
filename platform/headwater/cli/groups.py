"""`headwater groups`: consumer groups, their lag, and their committed offsets."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import click

from headwater.cli.console_tables import console, table
from headwater.cli.existing_topics import check_partitions, existing_topics
from headwater.cli.group_output import (
    DEAD,
    code_name,
    hint,
    partition_row,
    show_deleted,
    show_described,
)
from headwater.cli.options import (
    bootstrap_options,
    check_dry_run,
    dry_run_option,
    echo_json,
    json_option,
    open_admin,
    timeout_option,
    within,
)
from headwater.cli.partition_arguments import expand
from headwater.cli.table_versions import offsets_of_versions
from headwater.client.admin.client import EARLIEST, LATEST, Admin
from headwater.client.values import (
    GroupDescription,
    MemberDescription,
    OffsetAndMetadata,
    TopicPartition,
)
from headwater.errors import EXIT_FAILED, ErrorCode, KafkaError, UsageError
from headwater.wire.primitives import INT64_MAX

DELTA_TARGETS = ("to_delta_version", "to_delta_timestamp")
STATES = (
    "Stable", "PreparingRebalance", "CompletingRebalance", "Empty", DEAD, "Assigning", "Reconciling"
)  # fmt: skip
"""The states of the classic protocol, then those that only the consumer protocol has (KIP-848)."""

Offsets = dict[TopicPartition, int]


def _datetime(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """The timestamp of `2026-11-21T10:00:00`, in this machine's time zone unless it names one."""
    if text is None:
        return None
    try:
        found = int(dt.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r}: write it as 2026-11-21T10:00:00+01:00") from None
    if found < 0:  # in ListOffsets, -1 and lower are names of offsets
        raise click.BadParameter(f"{text!r}: records have no time before 1970")
    return found


def moment_option(name: str, text: str) -> Callable[[Any], Any]:
    """An option that takes a time, and gives it as a timestamp."""
    return click.option(name, callback=_datetime, metavar="ISO", help=text)


def _moment(timestamp_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)


@click.group()
def groups() -> None:
    """List, describe, delete and reset consumer groups."""


@groups.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only groups in this state. May be repeated.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(("classic", "consumer", "share", "streams"), case_sensitive=False),
    help="Only groups of this type. May be repeated.",
)
@timeout_option
@bootstrap_options
@json_option
def list_groups(
    states: tuple[str, ...],
    types: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """List the groups with their type, state and protocol type."""
    wanted = {state.lower() for state in states}
    if unknown := sorted(wanted - {state.lower() for state in STATES}):
        known = ", ".join(STATES)
        raise UsageError(f"--state {unknown[0]!r} is no state of a group: give one of {known}")
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        found = admin.list_groups()
    shown = [
        g
        for g in found
        if (not wanted or g.state.lower() in wanted)
        and (not types or (g.group_type or "classic").lower() in types)
    ]
    if as_json:
        echo_json([g._asdict() for g in shown])
        return 0
    rows = table(None, "group, type, state, protocol")
    for group in shown:
        rows.add_row(group.group_id, group.group_type, group.state, group.protocol_type)
    console().print(rows)
    return 0


@groups.command("describe")
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@timeout_option
@bootstrap_options
@json_option
def describe(
    names: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Show the members, committed offsets and lag of groups. The exit code is 1 when one does not
    exist."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        committed = admin.list_offsets_of_groups(names)
        documents = [
            _document(admin, group, committed[name])
            for name, group in admin.describe_groups(names).items()
        ]
    return show_described(documents, "group", _print, as_json=as_json)


@groups.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@timeout_option
@bootstrap_options
@json_option
def delete(
    names: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Delete groups without members, with their offsets. The exit code is 1 when one was not
    deleted."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        outcomes = admin.try_delete_groups(names)
    deleted = [name for name, error in outcomes.items() if error is None]
    failed = {name: error for name, error in outcomes.items() if error is not None}
    return show_deleted(deleted, failed, as_json=as_json)


@groups.command("delete-offsets")
@click.argument("group")
@click.option("--topic", "wanted", multiple=True, required=True, metavar="TOPIC[:0,2]",
              help="Partitions whose offsets are deleted. May be repeated.")  # fmt: skip
@timeout_option
@bootstrap_options
@json_option
def delete_offsets(
    group: str,
    wanted: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Delete committed offsets of a group. No member may be subscribed to the topics."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        outcomes = admin.delete_group_offsets(group, expand(admin, wanted, "--topic"))
    failed = {tp: error for tp, error in outcomes.items() if error is not None}
    if as_json:
        echo_json([partition_row(tp, error=code_name(error)) for tp, error in outcomes.items()])
    else:
        done = [f"{tp.topic}-{tp.partition}" for tp in outcomes if tp not in failed]
        if done or not failed:
            click.echo(f"group {group}: deleted the offsets of {', '.join(done) or 'nothing'}")
        for tp, error in failed.items():
            click.echo(f"{tp.topic}-{tp.partition}: {error}{hint(error)}", err=True)
    return EXIT_FAILED if failed else 0


@groups.command("reset-offsets")
@click.argument("group")
@click.option("--topic", "wanted", multiple=True, metavar="TOPIC[:0,2]",
              help="Partitions to reset. May be repeated.")  # fmt: skip
@click.option("--all-topics", is_flag=True,
              help="Reset every partition with a committed offset of the group.")  # fmt: skip
@click.option("--to-earliest", is_flag=True, help="To the earliest offset.")
@click.option("--to-latest", is_flag=True, help="To the latest offset.")
@click.option("--to-current", is_flag=True, help="To the committed offset, or else the latest.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by N, or back if N is negative.")
@moment_option("--to-datetime", "To the first record at or after a time: 2026-11-21T10:00:00Z.")
@click.option("--to-delta-version", type=int, callback=within(0, INT64_MAX), metavar="N",
              help="To the first record after version N of the topic's table.")  # fmt: skip
@moment_option("--to-delta-timestamp", "To the first record after the tables' versions at a time.")
@dry_run_option("the new offsets")
@click.option("--execute", is_flag=True, help="Commit the new offsets.")
@timeout_option
@bootstrap_options
@json_option
def reset_offsets(
    group: str,
    wanted: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
    **targets: Any,
) -> int:
    """Reset the committed offsets of a group.

    The group must have no members. Without --execute the new offsets are only shown. An offset
    outside of the log becomes the nearest one inside.
    """
    target, value = _only_target(targets)
    check_dry_run(dry_run, execute)
    if all_topics == bool(wanted):
        raise UsageError("give --topic TOPIC[:0,2] (repeatable), or --all-topics")
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        state = admin.describe_groups([group])[group].state
        committed = {tp: at.offset for tp, at in admin.list_group_offsets(group).items()}
        rows = sorted(committed) if all_topics else expand(admin, wanted, "--topic")
        check_partitions(existing_topics(admin, {tp.topic for tp in rows}), rows)
        if not rows:
            raise UsageError(f"group {group} has no committed offsets: give --topic TOPIC")
        if state not in ("Empty", DEAD):
            text = f"group {group} is {state}: stop its consumers first"
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, text)
        offsets = _new_offsets(admin, rows, committed, target, value)
        if execute:
            admin.alter_group_offsets(
                group, {tp: OffsetAndMetadata(at) for tp, at in offsets.items()}
            )
    if as_json:
        plan = [
            partition_row(tp, offset=at, before=committed.get(tp)) for tp, at in offsets.items()
        ]
        echo_json({"group": group, "executed": execute, "offsets": plan})
        return 0
    shown = table(None, "partition, >committed, >new offset")
    for tp, offset in offsets.items():
        shown.add_row(f"{tp.topic}-{tp.partition}", str(committed.get(tp, "-")), str(offset))
    console().print(shown)
    if not execute:
        click.echo("a dry run: give --execute to commit the new offsets")
    return 0


def _only_target(targets: dict[str, Any]) -> tuple[str, Any]:
    """The name and value of the one option that names the new offset. Raises UsageError."""
    given = [(n, v) for n, v in targets.items() if v is not None and v is not False]
    if len(given) != 1:
        names = ", ".join("--" + name.replace("_", "-") for name in targets)
        raise UsageError(f"to which offsets? Give exactly one of {names}")
    return given[0]


def _new_offsets(
    admin: Admin, rows: list[TopicPartition], committed: Offsets, target: str, value: Any
) -> Offsets:
    """The new offset of each partition, never outside of its log."""
    first = _offsets(admin, rows, EARLIEST)
    end = _offsets(admin, rows, LATEST)
    choose: Callable[[TopicPartition], int]
    if target == "to_earliest":
        choose = first.__getitem__
    elif target == "to_latest":
        choose = end.__getitem__
    elif target == "to_offset":
        choose = lambda tp: int(value)  # noqa: E731
    elif target == "to_datetime":
        found = _offsets(admin, rows, int(value))
        choose = lambda tp: found[tp] if found[tp] >= 0 else end[tp]  # noqa: E731
    elif target in DELTA_TARGETS:
        at = int(value) if target == "to_delta_version" else _moment(int(value))
        after = offsets_of_versions(admin, rows, at)
        choose = lambda tp: after.get(tp, first[tp])  # noqa: E731
    else:
        step = int(value) if target == "shift_by" else 0
        choose = lambda tp: committed.get(tp, end[tp]) + step  # noqa: E731
    return {tp: min(max(choose(tp), first[tp]), end[tp]) for tp in rows}


def _offsets(admin: Admin, rows: list[TopicPartition], timestamp: int) -> Offsets:
    found = admin.list_offsets(dict.fromkeys(rows, timestamp))
    return {tp: found[tp].offset for tp in rows}


def _document(
    admin: Admin, group: GroupDescription, offsets: dict[TopicPartition, OffsetAndMetadata]
) -> dict[str, Any]:
    committed = {tp: at.offset for tp, at in offsets.items()}
    holders: dict[TopicPartition, MemberDescription] = {
        tp: member for member in group.members for tp in member.assignment
    }
    rows = sorted(committed.keys() | holders.keys())
    ends = _ends(admin, rows)
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "members": len(group.members),
        "type": group.group_type,
        **_epochs(group),
        "partitions": [
            partition_row(
                tp,
                committed=committed.get(tp),
                end=ends.get(tp),
                lag=max(ends[tp] - committed[tp], 0) if tp in ends and tp in committed else None,
                member=holders[tp].member_id if tp in holders else None,
                host=holders[tp].host if tp in holders else None,
                client_id=holders[tp].client_id if tp in holders else None,
            )
            for tp in rows
        ],
    }


def _epochs(group: GroupDescription) -> dict[str, Any]:
    """Of the consumer protocol: how far the group and each member are on the way to the target."""
    if group.epoch < 0:
        return {}
    return {
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "targets": [
            {
                "member": m.member_id,
                "instance_id": m.group_instance_id,
                "epoch": m.epoch,
                "assignment": [f"{tp.topic}-{tp.partition}" for tp in sorted(m.assignment)],
                "target": [f"{tp.topic}-{tp.partition}" for tp in sorted(m.target or ())],
            }
            for m in sorted(group.members)
        ],
    }


def _ends(admin: Admin, rows: list[TopicPartition]) -> Offsets:
    """The latest offsets. Partitions that do not exist any more or have no leader are left out: the
    command would wait for a leader before it showed the others."""
    topics = admin.describe_topics().values()
    led = {(t.name, p.partition) for t in topics for p in t.partitions if p.leader >= 0}
    return _offsets(admin, [tp for tp in rows if tp in led], LATEST)


def _print(document: dict[str, Any]) -> None:
    members = document["members"]
    title = f"{document['group']}: {document['state']}, {members} members"
    if "epoch" in document:
        title += (
            f", {document['type']} protocol, epoch {document['epoch']}, "
            f"target of epoch {document['target_epoch']}"
        )
    shown = table(title, "partition, >committed, >end, >lag, member, host, client")
    for row in document["partitions"]:
        numbers = (row[key] for key in ("committed", "end", "lag"))
        texts = (row[key] for key in ("member", "host", "client_id"))
        shown.add_row(
            f"{row['topic']}-{row['partition']}",
            *("-" if n is None else str(n) for n in numbers),
            *(text or "-" for text in texts),
        )
    console().print(shown)
    moving = [m for m in document.get("targets", ()) if m["assignment"] != m["target"]]
    if moving:
        rows = table("members on the way", "member, >epoch, assignment, target")
        for m in moving:
            lists = (", ".join(m[key]) or "-" for key in ("assignment", "target"))
            rows.add_row(m["member"], str(m["epoch"]), *lists)
        console().print(rows)
