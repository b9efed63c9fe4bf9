"""`headwater reassign`: replicas move to other brokers (KIP-455), by plans as Kafka's tool has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import click

from headwater.cli.console_tables import console, table
from headwater.cli.existing_topics import existing_topics
from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.cli.partition_arguments import name_of, parse_ids, read_text
from headwater.cli.reassign.log_dirs import (
    cancel_folders,
    folder_status,
    move_folders,
    move_folders_when_there,
)
from headwater.cli.reassign.plan import (
    COMPLETE,
    FAILED,
    IN_PROGRESS,
    Folders,
    Plan,
    current_plan,
    plan_document,
    propose,
    read_folders,
    read_plan,
    read_topics,
)
from headwater.cli.reassign.progress import follow, status_of, topics_of
from headwater.cli.reassign.throttle_options import apply_throttles, remove_throttles
from headwater.cli.reassign.throttles import throttles
from headwater.client.admin.replicas import Outcomes
from headwater.client.values import TopicPartition
from headwater.errors import EXIT_FAILED, HeadwaterError, KafkaError, UsageError
from headwater.system import SystemEntropy


@click.group()
def reassign() -> None:
    """Move partitions to other brokers: generate a plan, execute it, verify that it is done."""


@reassign.command("generate")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Repeatable.")
@click.option("--topics-file", metavar="FILE", help='{"topics": [{"topic": "t"}]}')
@click.option("--brokers", required=True, metavar="ID,...", help="Where the replicas shall be.")
@click.option("--disable-rack-aware", is_flag=True, help="Place without regard to racks.")
@bootstrap_options
@json_option
def generate(
    topics: tuple[str, ...],
    topics_file: str | None,
    brokers: str,
    disable_rack_aware: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Propose a plan that spreads topics over brokers; nothing is changed."""
    names = [*topics, *(read_topics(read_text(topics_file), topics_file) if topics_file else ())]
    if not names:
        raise UsageError("which topics? Give --topic TOPIC or --topics-file FILE")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UsageError(f"topics that are named more than once: {', '.join(doubled)}")
    ids = parse_ids(brokers, "--brokers")
    with open_admin(bootstrap_server, directory) as admin:
        found = list(existing_topics(admin, names).values())
        live = admin.describe_cluster().brokers
    proposed = propose(found, ids, live, SystemEntropy(), by_rack=not disable_rack_aware)
    now, then = plan_document(current_plan(found)), plan_document(proposed)
    if as_json:
        echo_json({"current": now, "proposed": then})
        return 0
    click.echo(f"Current partition replica assignment\n{json.dumps(now)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{json.dumps(then)}")
    return 0


@reassign.command("execute")
@click.argument("plan_file", metavar="PLAN.json")
@click.option("--additional", is_flag=True, help="Also while other moves are under way.")
@click.option(
    "--disallow-replication-factor-change", is_flag=True, help="Refuse to change replica counts."
)
@click.option(
    "--wait", is_flag=True, help="Return when none is under way; exit code 1 when one failed."
)
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES", help="Per second and broker.")
@click.option(
    "--replica-alter-log-dirs-throttle", "folders_rate", type=click.IntRange(1), metavar="BYTES",
    help="Of copies between data folders, per second and broker.",
)  # fmt: skip
@bootstrap_options
@json_option
def execute(
    plan_file: str,
    additional: bool,
    disallow_replication_factor_change: bool,
    wait: bool,
    throttle: int | None,
    folders_rate: int | None,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Begin the moves of a plan; tells the present assignment first, which is the way back."""
    plan, folders = _read_moves(plan_file)
    with open_admin(bootstrap_server, directory) as admin:
        before = current_plan(topics_of(admin, plan))
        unknown = [name_of(tp) for tp in plan if tp not in before]
        if unknown:
            raise UsageError(f"{plan_file}: no such partitions: {', '.join(unknown)}")
        moving = admin.list_partition_reassignments()
        if moving and not additional:
            names = ", ".join(map(name_of, moving))
            raise HeadwaterError(f"moves are under way ({names}): wait, or give --additional")
        slowed = throttles(plan, before, folders, moving, rate=throttle, folders_rate=folders_rate)
        try:
            apply_throttles(admin, slowed)
        except KafkaError:
            remove_throttles(admin, plan)  # of brokers that were reached before
            raise
        move_folders(admin, folders)  # replicas to come are made there
        outcomes = admin.alter_partition_reassignments(
            {tp: list(replicas) for tp, replicas in plan.items()},
            allow_replication_factor_change=not disallow_replication_factor_change,
        )
        if (throttle or folders_rate) and all(outcomes.values()):
            remove_throttles(admin, plan)  # nothing moves: there is nothing to slow
        if not as_json:
            click.echo(f"Current partition replica assignment\n{json.dumps(plan_document(before))}")
            click.echo("\nSave this: executed, it is the way back.")
        refused = move_folders_when_there(admin, folders)
        failed: dict[str, str] = {}
        followed = wait and not refused and not _refusals(outcomes)
        if followed:
            failed = follow(admin, plan, folders, quiet=as_json)
            if throttle or folders_rate:
                remove_throttles(admin, plan)
    begun = [name for name in _accepted(outcomes) if name not in failed]
    done = f"{'Reassigned' if followed else 'Started to reassign'}: {', '.join(begun)}"
    others = {"folders": refused, "failed": failed}
    return _end(outcomes, done if begun else "", as_json, others, current=plan_document(before))


@reassign.command("verify")
@click.argument("plan_file", metavar="PLAN.json")
@click.option("--preserve-throttles", is_flag=True, help="Leave them, also when all is done.")
@bootstrap_options
@json_option
def verify(
    plan_file: str,
    preserve_throttles: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Say how far each move of a plan is. Exit code 1 when one has failed. When no move of the
    plan is under way any more, throttles are removed, but for those of other moves."""
    plan, folders = _read_moves(plan_file)
    with open_admin(bootstrap_server, directory) as admin:
        found = status_of(admin, plan)
        copies = folder_status(admin, folders)
        is_under_way = IN_PROGRESS in found.values() or any(
            why.startswith(IN_PROGRESS) for why in copies.values()
        )
        if not preserve_throttles and not is_under_way:
            remove_throttles(admin, plan)
    done = all(s == COMPLETE for s in found.values()) and not copies
    open_folders = [f"{name}: {why}" for name, why in copies.items()]
    if as_json:
        rows = [{**tp._asdict(), "status": status} for tp, status in sorted(found.items())]
        echo_json({"partitions": rows, "folders": open_folders, "done": done})
    else:
        _print_table("partition, status", {tp: (status,) for tp, status in found.items()})
        for line in open_folders:
            click.echo(line)
    has_failed = any(why.startswith(FAILED) for why in (*found.values(), *copies.values()))
    return EXIT_FAILED if has_failed else 0


@reassign.command("list")
@bootstrap_options
@json_option
def list_moves(bootstrap_server: str | None, directory: str, as_json: bool) -> int:
    """Show the moves under way."""
    with open_admin(bootstrap_server, directory) as admin:
        found = admin.list_partition_reassignments()
    if as_json:
        echo_json([{**tp._asdict(), **move._asdict()} for tp, move in sorted(found.items())])
    elif not found:
        click.echo("no moves are under way")
    else:
        rows = {tp: [",".join(map(str, ids)) for ids in move] for tp, move in found.items()}
        _print_table("partition, replicas, adding, removing", rows)
    return 0


@reassign.command("cancel")
@click.argument("plan_file", metavar="PLAN.json")
@click.option("--preserve-throttles", is_flag=True, help="Leave them in place.")
@bootstrap_options
@json_option
def cancel(
    plan_file: str,
    preserve_throttles: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Stop the moves of a plan that are under way; replicas go back to where they were, also those
    on their way to another data folder. Throttles are removed, but for those of other moves."""
    plan, folders = _read_moves(plan_file)
    with open_admin(bootstrap_server, directory) as admin:
        moving = [tp for tp in admin.list_partition_reassignments() if tp in plan]
        outcomes = admin.alter_partition_reassignments(dict.fromkeys(moving)) if moving else {}
        stayed, refused = cancel_folders(admin, folders)
        if not preserve_throttles and not refused and not _refusals(outcomes):
            remove_throttles(admin, plan)
    names = [*_accepted(outcomes), *stayed]
    done = f"Cancelled: {', '.join(names)}" if names else ""
    if not moving and not stayed and not refused:
        done = "none of the plan's moves is under way"
    return _end(outcomes, done, as_json, {"folders": refused}, folders_cancelled=stayed)


def _read_moves(plan_file: str) -> tuple[Plan, Folders]:
    text = read_text(plan_file)
    return read_plan(text, plan_file), read_folders(text, plan_file)


def _refusals(outcomes: Outcomes) -> dict[str, str]:
    return {name_of(tp): str(error) for tp, error in outcomes.items() if error is not None}


def _accepted(outcomes: Outcomes) -> list[str]:
    return [name_of(tp) for tp, error in outcomes.items() if error is None]


def _print_table(columns: str, rows: Mapping[TopicPartition, Sequence[str]]) -> None:
    shown = table(None, columns)
    for tp, cells in sorted(rows.items()):
        shown.add_row(name_of(tp), *cells)
    console().print(shown)


def _end(
    outcomes: Outcomes,
    done: str,
    as_json: bool,
    others: Mapping[str, Mapping[str, str]],
    **told: Any,
) -> int:
    """What a change of moves ends with: JSON (with `told`), or `done`, when it says something, and
    the refusals; and the exit code. `others`: more refusals, by their name in JSON."""
    failed = _refusals(outcomes)
    for rows in others.values():
        failed |= rows
    if as_json:
        results = [
            {
                **tp._asdict(),
                "error": None if error is None else error.code.name,
                "message": None if error is None else error.detail,
            }
            for tp, error in sorted(outcomes.items(), key=itemgetter(0))
        ]
        echo_json({**told, "results": results, **{k: v for k, v in others.items() if v}})
        return EXIT_FAILED if failed else 0
    if done:  # moves that began go on beside those that were refused
        click.echo(done)
    for name, error in failed.items():
        click.echo(f"{name}: {error}", err=True)
    return EXIT_FAILED if failed else 0
