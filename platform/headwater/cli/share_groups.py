"""`headwater share-groups`: share groups, their lag and their start offsets
(kafka-share-groups.sh)."""

from __future__ import annotations

from collections.abc import Mapping
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
from headwater.cli.groups import moment_option
from headwater.cli.options import (
    bootstrap_options,
    check_dry_run,
    dry_run_option,
    echo_json,
    json_option,
    open_admin,
    timeout_option,
)
from headwater.cli.partition_arguments import expand, name_of
from headwater.cli.share_group_holds import holds
from headwater.client.admin.client import EARLIEST, LATEST, Admin
from headwater.client.share_group_values import ShareGroupDescription
from headwater.client.values import TopicPartition
from headwater.errors import EXIT_FAILED, ErrorCode, KafkaError, UsageError

STATES = ("Stable", "Empty", DEAD)


@click.group("share-groups")
def share_groups() -> None:
    """List, describe, delete and reset share groups."""


share_groups.add_command(holds)


@share_groups.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE",
              help="Only groups in this state. May be repeated.")  # fmt: skip
@timeout_option
@bootstrap_options
@json_option
def list_groups(
    states: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """List the share groups with their state."""
    wanted = {state.lower() for state in states}
    if unknown := sorted(wanted - {state.lower() for state in STATES}):
        text = f"--state {unknown[0]!r} is no state of a share group: give one of "
        raise UsageError(text + ", ".join(STATES))
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        found = admin.list_share_groups()
    shown = [g for g in found if not wanted or g.state.lower() in wanted]
    if as_json:
        echo_json([{"group": g.group_id, "state": g.state} for g in shown])
        return 0
    rows = table(None, "group, state")
    for group in shown:
        rows.add_row(group.group_id, group.state)
    console().print(rows)
    return 0


@share_groups.command("describe")
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
    """Show the members, start offsets and lag of share groups. The exit code is 1 when one does not
    exist."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        found = admin.describe_share_groups(names).values()
        documents = [_document(admin, group) for group in found]
    return show_described(documents, "share group", _print, as_json=as_json)


@share_groups.command("delete")
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
    """Delete share groups without members, with their state. The exit code is 1 when one was not
    deleted."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        states = {n: d.state for n, d in admin.describe_share_groups(names).items()}
        known = [name for name in names if states[name] != DEAD]
        outcomes = admin.try_delete_groups(known) if known else {}
    missing = {
        name: KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"share group {name} does not exist")
        for name in names
        if name not in known
    }
    failed = {**missing, **{n: e for n, e in outcomes.items() if e is not None}}
    deleted = [name for name in known if name not in failed]
    return show_deleted(deleted, failed, as_json=as_json)


@share_groups.command("delete-offsets")
@click.argument("group")
@click.option("--topic", "topics", multiple=True, required=True, metavar="TOPIC",
              help="The topic to forget. May be repeated.")  # fmt: skip
@timeout_option
@bootstrap_options
@json_option
def delete_offsets(
    group: str,
    topics: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Forget topics of a share group without members: it begins anew there."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        outcomes = admin.delete_share_group_offsets(group, topics)
    failed = {topic: error for topic, error in outcomes.items() if error is not None}
    if as_json:
        echo_json([{"topic": t, "error": code_name(error)} for t, error in outcomes.items()])
        return EXIT_FAILED if failed else 0
    done = [topic for topic in outcomes if topic not in failed]
    if done:
        click.echo(f"share group {group}: deleted the offsets of {', '.join(done)}")
    _print_failed(failed)
    return EXIT_FAILED if failed else 0


@share_groups.command("reset-offsets")
@click.argument("group")
@click.option("--topic", "wanted", multiple=True, metavar="TOPIC[:0,2]",
              help="Partitions to reset. May be repeated.")  # fmt: skip
@click.option("--all-topics", is_flag=True,
              help="Reset every partition that the group has an offset of.")  # fmt: skip
@click.option("--to-earliest", is_flag=True, help="To the earliest offset.")
@click.option("--to-latest", is_flag=True, help="To the latest offset.")
@moment_option("--to-datetime", "To the first record at or after a time: 2026-11-21T10:00:00Z.")
@dry_run_option("the new offsets")
@click.option("--execute", is_flag=True, help="Set the new offsets.")
@timeout_option
@bootstrap_options
@json_option
def reset_offsets(
    group: str,
    wanted: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_datetime: int | None,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Let a share group begin at other offsets.

    The group must have no members; with --topic, one that does not exist is made. Without --execute
    the new offsets are only shown. What was accepted behind a new offset is delivered again.
    """
    if to_earliest + to_latest + (to_datetime is not None) != 1:
        names = "--to-earliest, --to-latest, --to-datetime"
        raise UsageError(f"to which offsets? Give exactly one of {names}")
    check_dry_run(dry_run, execute)
    if all_topics == bool(wanted):
        raise UsageError("give --topic TOPIC[:0,2] (repeatable), or --all-topics")
    timestamp = EARLIEST if to_earliest else LATEST if to_datetime is None else to_datetime
    outcomes: Mapping[TopicPartition, KafkaError | None] = {}
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        state = admin.describe_share_groups([group])[group].state
        if state == DEAD and all_topics:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"share group {group} does not exist")
        before = {tp: at.start_offset for tp, at in admin.list_share_group_offsets(group).items()}
        rows = sorted(before) if all_topics else expand(admin, wanted, "--topic")
        check_partitions(existing_topics(admin, {tp.topic for tp in rows}), rows)
        if not rows:
            raise UsageError(f"share group {group} has no offsets: give --topic TOPIC")
        if state not in ("Empty", DEAD):
            text = f"share group {group} is {state}: stop its consumers first"
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, text)
        offsets = _offsets_at(admin, rows, timestamp)
        if execute:
            outcomes = admin.alter_share_group_offsets(group, offsets)
    failed = {name_of(tp): error for tp, error in outcomes.items() if error is not None}
    if as_json:
        plan = [
            partition_row(tp, offset=at, before=before.get(tp), error=code_name(outcomes.get(tp)))
            for tp, at in offsets.items()
        ]
        echo_json({"group": group, "executed": execute, "offsets": plan})
        return EXIT_FAILED if failed else 0
    shown = table(None, "partition, >start offset, >new offset")
    for tp, offset in offsets.items():
        shown.add_row(name_of(tp), str(before.get(tp, "-")), str(offset))
    console().print(shown)
    if not execute:
        click.echo("a dry run: give --execute to set the new offsets")
    _print_failed(failed)
    return EXIT_FAILED if failed else 0


def _offsets_at(
    admin: Admin, rows: list[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """The offset of each partition at a timestamp, or the end when no record is as late."""
    found = admin.list_offsets(dict.fromkeys(rows, timestamp))
    late = [tp for tp in rows if found[tp].offset < 0]
    ends = admin.list_offsets(dict.fromkeys(late, LATEST)) if late else {}
    return {tp: (ends[tp] if tp in ends else found[tp]).offset for tp in rows}


def _document(admin: Admin, group: ShareGroupDescription) -> dict[str, Any]:
    offsets = {} if group.state == DEAD else admin.list_share_group_offsets(group.group_id)
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.assignor,
        "group_epoch": group.group_epoch,
        "members": [
            {
                "member": m.member_id,
                "client_id": m.client_id,
                "host": m.host,
                "assignment": [partition_row(tp) for tp in m.assignment],
            }
            for m in group.members
        ],
        "partitions": [
            partition_row(tp, start_offset=at.start_offset, lag=at.lag)
            for tp, at in sorted(offsets.items())
        ],
    }


def _print(document: dict[str, Any]) -> None:
    members = document["members"]
    title = f"{document['group']}: {document['state']}, {len(members)} members"
    shown = table(title, "partition, >start offset, >lag")
    for row in document["partitions"]:
        lag = "-" if row["lag"] is None else str(row["lag"])
        shown.add_row(f"{row['topic']}-{row['partition']}", str(row["start_offset"]), lag)
    console().print(shown)
    if not members:
        return
    shown = table(None, "member, client, host, partitions")
    for member in members:
        names = (f"{tp['topic']}-{tp['partition']}" for tp in member["assignment"])
        shown.add_row(member["member"], member["client_id"], member["host"], ", ".join(names))
    console().print(shown)


def _print_failed(failed: Mapping[str, KafkaError]) -> None:
    for name, error in failed.items():
        click.echo(f"{name}: {error}{hint(error)}", err=True)
