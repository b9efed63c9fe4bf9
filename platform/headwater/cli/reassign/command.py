"""`headwater reassign`: partition reassignments by the plans of Kafka's own tool (KIP-455)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import click

from headwater.cli.console_tables import console, table
from headwater.cli.existing_topics import existing_topics
from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin, within
from headwater.cli.partition_arguments import name_of, parse_ids, read_text
from headwater.cli.reassign.log_dirs import (
    cancel_log_dirs,
    log_dir_states,
    move_log_dirs,
    move_log_dirs_when_created,
)
from headwater.cli.reassign.plan import (
    COMPLETE,
    FAILED,
    IN_PROGRESS,
    LogDirs,
    Plan,
    current_plan,
    plan_document,
    propose,
    read_log_dirs,
    read_plan,
    read_topics,
)
from headwater.cli.reassign.progress import (
    Pacing,
    differences,
    plan_states,
    topics_of,
    wait_for,
)
from headwater.cli.reassign.throttle_changes import apply_throttles, remove_throttles
from headwater.cli.reassign.throttles import throttles
from headwater.client.admin.replicas import Outcomes
from headwater.client.values import TopicPartition
from headwater.errors import EXIT_FAILED, HeadwaterError, KafkaError, UsageError
from headwater.system import SystemEntropy
from headwater.wire.primitives import INT64_MAX


@click.group()
def reassign() -> None:
    """Move replicas to other brokers by plans."""


@reassign.command("generate")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC",
              help="Topic to move. May be repeated.")  # fmt: skip
@click.option("--topics-file", "--topics-to-move-json-file", metavar="FILE",
              help='Topics to move as JSON: {"topics": [{"topic": "t"}]}')  # fmt: skip
@click.option("--brokers", "--broker-list", required=True, metavar="ID,...",
              help="Brokers for the replicas.")  # fmt: skip
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks.")
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
    """Generate a plan that spreads topics over brokers. It changes nothing."""
    names = [*topics, *(read_topics(read_text(topics_file), topics_file) if topics_file else ())]
    if not names:
        raise UsageError("which topics? Give --topic TOPIC or --topics-file FILE")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UsageError(f"topics named more than once: {', '.join(doubled)}")
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
@click.option("--additional", is_flag=True,
              help="Allow it while other reassignments are in progress.")  # fmt: skip
@click.option("--disallow-replication-factor-change", is_flag=True,
              help="Refuse a plan that changes a replication factor.")  # fmt: skip
@click.option("--wait", is_flag=True,
              help="Wait for the end; exit with 1 when a reassignment failed.")  # fmt: skip
@click.option("--throttle", type=int, callback=within(1, INT64_MAX), metavar="BYTES",
              help="Limit of each broker for replication, in bytes per second.")  # fmt: skip
@click.option("--replica-alter-log-dirs-throttle", "log_dirs_rate", type=int,
              callback=within(1, INT64_MAX), metavar="BYTES",
              help="Limit of each broker between log dirs, in bytes per second.")  # fmt: skip
@bootstrap_options
@json_option
@click.pass_obj
def execute(
    pacing: Pacing | None,
    plan_file: str,
    additional: bool,
    disallow_replication_factor_change: bool,
    wait: bool,
    throttle: int | None,
    log_dirs_rate: int | None,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Execute a plan. It prints the current assignment first: keep that, it is the plan that undoes
    this one."""
    plan, log_dirs = _read_plan(plan_file)
    with open_admin(bootstrap_server, directory) as admin:
        before = current_plan(topics_of(admin, plan))
        unknown = [name_of(tp) for tp in plan if tp not in before]
        if unknown:
            raise UsageError(f"{plan_file}: no such partitions: {', '.join(unknown)}")
        moving = admin.list_partition_reassignments()
        if moving and not additional:
            names = ", ".join(map(name_of, moving))
            raise HeadwaterError(
                f"reassignments are in progress ({names}): wait, or give --additional"
            )
        wanted = throttles(
            plan, before, log_dirs, moving, rate=throttle, log_dirs_rate=log_dirs_rate
        )
        try:
            apply_throttles(admin, wanted)
        except KafkaError:
            remove_throttles(admin, plan)  # from the brokers before the one that failed
            raise
        move_log_dirs(admin, log_dirs)  # new replicas are created there
        outcomes = admin.alter_partition_reassignments(
            {tp: list(replicas) for tp, replicas in plan.items()},
            allow_replication_factor_change=not disallow_replication_factor_change,
        )
        if (throttle or log_dirs_rate) and all(outcomes.values()):
            remove_throttles(admin, plan)  # every partition was refused
        if not as_json:
            click.echo(f"Current partition replica assignment\n{json.dumps(plan_document(before))}")
            click.echo("\nSave this to use as the plan that undoes the reassignment.")
        refused = move_log_dirs_when_created(admin, log_dirs)
        failed: dict[str, str] = {}
        is_awaited = wait and not refused and not _refusals(outcomes)
        if is_awaited:
            failed = wait_for(admin, plan, log_dirs, pacing or Pacing(), quiet=as_json)
            if throttle or log_dirs_rate:
                remove_throttles(admin, plan)
    started = [name for name in _accepted(outcomes) if name not in failed]
    done = f"{'Reassigned' if is_awaited else 'Started to reassign'}: {', '.join(started)}"
    if (throttle or log_dirs_rate) and not is_awaited:
        done += f"\nThrottled until `headwater reassign verify {plan_file}` finds it done: run that"
    others = {"log_dirs": refused, "failed": failed}
    return _end(outcomes, done if started else "", as_json, others, current=plan_document(before))


@reassign.command("verify")
@click.argument("plan_file", metavar="PLAN.json")
@click.option(
    "--preserve-throttles", is_flag=True, help="Keep the throttles when the plan is done."
)
@bootstrap_options
@json_option
def verify(
    plan_file: str,
    preserve_throttles: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Show the state of each reassignment of a plan. The exit code is 1 when one has failed.

    When none is in progress any more, the throttles are removed, except those that other
    reassignments need.
    """
    plan, log_dirs = _read_plan(plan_file)
    with open_admin(bootstrap_server, directory) as admin:
        found = plan_states(admin, plan)
        for tp, difference in sorted(differences(admin, plan, found).items()):
            click.echo(f"{name_of(tp)}: {difference}", err=True)
        copies = log_dir_states(admin, log_dirs)
        is_in_progress = IN_PROGRESS in found.values() or any(
            state.startswith(IN_PROGRESS) for state in copies.values()
        )
        if not preserve_throttles and not is_in_progress:
            remove_throttles(admin, plan)
    done = all(state == COMPLETE for state in found.values()) and not copies
    unfinished = [f"{name}: {state}" for name, state in copies.items()]
    if as_json:
        rows = [{**tp._asdict(), "status": state} for tp, state in sorted(found.items())]
        echo_json({"partitions": rows, "log_dirs": unfinished, "done": done})
    else:
        _print_table("partition, status", {tp: (state,) for tp, state in found.items()})
        for line in unfinished:
            click.echo(line)
    has_failed = any(state.startswith(FAILED) for state in (*found.values(), *copies.values()))
    return EXIT_FAILED if has_failed else 0


@reassign.command("list")
@bootstrap_options
@json_option
def list_moves(bootstrap_server: str | None, directory: str, as_json: bool) -> int:
    """Show the reassignments in progress."""
    with open_admin(bootstrap_server, directory) as admin:
        found = admin.list_partition_reassignments()
    if as_json:
        echo_json([{**tp._asdict(), **move._asdict()} for tp, move in sorted(found.items())])
    elif not found:
        click.echo("no reassignment is in progress")
    else:
        rows = {tp: [",".join(map(str, ids)) for ids in move] for tp, move in found.items()}
        _print_table("partition, replicas, adding, removing", rows)
    return 0


@reassign.command("cancel")
@click.argument("plan_file", metavar="PLAN.json")
@click.option("--preserve-throttles", is_flag=True, help="Keep the throttles.")
@bootstrap_options
@json_option
def cancel(
    plan_file: str,
    preserve_throttles: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Cancel the reassignments of a plan that are in progress. Their partitions get their former
    replicas back, and replicas stay in their former log dir. Throttles are removed, except those
    that other reassignments need."""
    plan, log_dirs = _read_plan(plan_file)
    with open_admin(bootstrap_server, directory) as admin:
        moving = [tp for tp in admin.list_partition_reassignments() if tp in plan]
        outcomes = admin.alter_partition_reassignments(dict.fromkeys(moving)) if moving else {}
        stayed, refused = cancel_log_dirs(admin, log_dirs)
        if not preserve_throttles and not refused and not _refusals(outcomes):
            remove_throttles(admin, plan)
    names = [*_accepted(outcomes), *stayed]
    done = f"Cancelled: {', '.join(names)}" if names else ""
    if not moving and not stayed and not refused:
        done = "no reassignment of the plan is in progress"
    return _end(outcomes, done, as_json, {"log_dirs": refused}, log_dirs_cancelled=stayed)


def _read_plan(plan_file: str) -> tuple[Plan, LogDirs]:
    text = read_text(plan_file)
    return read_plan(text, plan_file), read_log_dirs(text, plan_file)


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
    **facts: Any,
) -> int:
    """Print the result as JSON (with `facts`), or as `done` and the refusals; the exit code.
    `others` are more refusals, by their JSON key."""
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
        echo_json({**facts, "results": results, **{k: v for k, v in others.items() if v}})
        return EXIT_FAILED if failed else 0
    if done:  # some partitions may have been accepted and others refused
        click.echo(done)
    for name, error in failed.items():
        click.echo(f"{name}: {error}", err=True)
    return EXIT_FAILED if failed else 0
