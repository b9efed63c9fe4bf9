"""`headwater sinks`: what Spark's queries write exactly once, and how an operator intervenes."""

from __future__ import annotations

from typing import Any

import click

from headwater.cli.console_tables import console
from headwater.cli.options import (
    bootstrap_options,
    check_dry_run,
    dry_run_option,
    echo_json,
    execute_option,
    found_and_unknown,
    json_option,
    open_admin,
    timeout_option,
    within,
)
from headwater.cli.sink_tables import description_table, epoch_table, sink_table
from headwater.client.admin.client import Admin
from headwater.client.sink_values import SinkDescription, SinkEpoch
from headwater.errors import EXIT_FAILED, ErrorCode, UsageError
from headwater.system import SystemClock
from headwater.wire.epoch_values import EpochState
from headwater.wire.primitives import INT64_MAX

STATES = tuple(state.label for state in EpochState)


sink_argument = click.argument("name", metavar="SINK")
epoch_argument = click.argument(
    "epoch", type=int, callback=within(0, INT64_MAX), metavar="EPOCH"
)  # fmt: skip


@click.group()
def sinks() -> None:
    """Show sinks of Spark's queries and batch writes, and decide about their epochs.

    A query that writes exactly once owns a sink. Each of its micro-batches is an epoch: one
    transaction of all of its tasks. See docs/epochs.md.
    """


@sinks.command("list")
@click.option("--state", metavar="STATE", type=click.Choice(STATES, case_sensitive=False),
              help="Only sinks with an epoch in this state: Open, Prepared, Committing, Aborting.",
              )  # fmt: skip
@click.option("--older-than", "older_than_ms", type=int, callback=within(0, INT64_MAX),
              metavar="MS", help="Only sinks with an epoch that is not complete for longer.",
              )  # fmt: skip
@timeout_option
@bootstrap_options
@json_option
def list_sinks(
    state: str | None,
    older_than_ms: int | None,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """List the sinks with their owner, last committed epoch, and epochs that are not complete."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        found = admin.list_sinks()
    now_ms = _now_ms()
    if state is not None or older_than_ms is not None:
        found = [
            sink
            for sink in found
            if any(_matches(epoch, state, older_than_ms, now_ms) for epoch in sink.epochs)
        ]
    if as_json:
        echo_json([_document(sink) for sink in found])
    elif found:
        shown = console()
        shown.print(sink_table(found, now_ms, shown.width))
    else:
        click.echo("no sinks")
    return 0


def _matches(epoch: SinkEpoch, state: str | None, older_than_ms: int | None, now_ms: int) -> bool:
    return (state is None or epoch.state == state) and (
        older_than_ms is None or now_ms - epoch.start_ms > older_than_ms
    )


@sinks.command("show")
@click.argument("names", nargs=-1, required=True, metavar="SINK...")
@timeout_option
@bootstrap_options
@json_option
def show(
    names: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Show sinks: owner, run, last committed epoch; of each epoch that is not complete the state,
    deadline, tasks, producers and partitions. The exit code is 1 when one does not exist."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        found, unknown = found_and_unknown(
            names, lambda name: _described(admin, name), ErrorCode.RESOURCE_NOT_FOUND
        )
    if as_json:
        echo_json([_document(sink) for sink in found])
    else:
        for sink in found:
            _print(sink)
    for name in unknown:
        click.echo(f"sink {name} does not exist", err=True)
    return EXIT_FAILED if unknown else 0


@sinks.command("delete")
@sink_argument
@dry_run_option("the sink")
@execute_option
@timeout_option
@bootstrap_options
@json_option
def delete(
    name: str,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Forget a sink whose query will not run again. Without --execute it is only shown.

    A query that goes on with a deleted sink begins it anew: epochs that it repeats from its
    checkpoint are written a second time. Refused while an epoch is not complete.
    """
    check_dry_run(dry_run, execute)
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        before = _described(admin, name)
        if execute:
            admin.delete_sinks([name])
    return _report(
        before, "delete the sink", f"deleted sink {name}", executed=execute, as_json=as_json
    )


@sinks.command("takeover")
@sink_argument
@click.option("--owner", metavar="ID",
              help="The id of the streaming query that owns the sink from now on, as in the file "
              "'metadata' of its checkpoint. Default: as before.",
              )  # fmt: skip
@click.option("--next-owner", is_flag=True,
              help="The next query that writes owns the sink from now on.")  # fmt: skip
@click.option("--last-epoch", type=int, callback=within(-1, INT64_MAX), metavar="N",
              help="The last committed epoch from now on, that of the owner's checkpoint; -1: none."
              " Default: as before.",
              )  # fmt: skip
@dry_run_option("the sink")
@execute_option
@timeout_option
@bootstrap_options
@json_option
def takeover(
    name: str,
    owner: str | None,
    next_owner: bool,
    last_epoch: int | None,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Hand a sink to another query, or to another checkpoint of its query. Without --execute the
    sink is only shown.

    The run that writes it is fenced, and its open epoch aborted. With --last-epoch below the
    sink's own, later epochs are written again: their rows are in the log twice. With one above,
    epochs up to it are not written. Refused while an epoch is prepared.
    """
    check_dry_run(dry_run, execute)
    if owner is not None and next_owner:
        raise UsageError("give --owner or --next-owner, not both")
    if owner == "":
        raise UsageError("--owner is empty: give the query's id, or --next-owner")
    if owner is None and not next_owner and last_epoch is None:
        raise UsageError("nothing to change: give --owner, --next-owner or --last-epoch")
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        shown = _described(admin, name)
        if execute:
            admin.take_over_sink(name, owner="" if next_owner else owner, last_epoch=last_epoch)
            shown = _described(admin, name)
    return _report(
        shown, "take the sink over", f"took sink {name} over", executed=execute, as_json=as_json
    )


@sinks.command("commit")
@sink_argument
@epoch_argument
@dry_run_option("the sink")
@execute_option
@timeout_option
@bootstrap_options
@json_option
def commit(
    name: str,
    epoch: int,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Commit a prepared epoch whose query does not come back to decide it. Without --execute it is
    only shown.

    Do so only when the other half of it, the Delta commit of this epoch, has happened. A query
    that is started again decides it by itself.
    """
    check_dry_run(dry_run, execute)
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        before = _described(admin, name)
        if execute:
            admin.commit_prepared_epoch(name, epoch)
        elif epoch != before.last_epoch:
            _prepared(before, epoch)
    done = f"committed epoch {epoch} of sink {name}"
    if epoch == before.last_epoch and not execute and not as_json:
        click.echo(f"epoch {epoch} of sink {name} is committed already: there is nothing to do")
        return 0
    return _report(before, f"commit epoch {epoch}", done, executed=execute, as_json=as_json)


@sinks.command("abort")
@sink_argument
@epoch_argument
@dry_run_option("the sink")
@execute_option
@timeout_option
@bootstrap_options
@json_option
def abort(
    name: str,
    epoch: int,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Abort a prepared epoch whose query does not come back to decide it. Without --execute it is
    only shown.

    Do so only when the other half of it, the Delta commit of this epoch, has not happened. An open
    epoch needs no command: the coordinator aborts it at its deadline.
    """
    check_dry_run(dry_run, execute)
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        before = _described(admin, name)
        if execute:
            admin.abort_prepared_epoch(name, epoch)
        else:
            _prepared(before, epoch)
    done = f"aborted epoch {epoch} of sink {name}"
    return _report(before, f"abort epoch {epoch}", done, executed=execute, as_json=as_json)


def _prepared(sink: SinkDescription, epoch: int) -> SinkEpoch:
    """The prepared epoch. Raises UsageError."""
    prepared = [e for e in sink.epochs if e.state == EpochState.PREPARED.label]
    found = next((e for e in prepared if e.epoch == epoch), None)
    if found is None:
        known = ", ".join(str(e.epoch) for e in prepared) or "none"
        raise UsageError(f"epoch {epoch} of sink {sink.sink} is not prepared; prepared: {known}")
    return found


def _report(sink: SinkDescription, verb: str, done: str, *, executed: bool, as_json: bool) -> int:
    if as_json:
        echo_json({**_document(sink), "executed": executed})
        return 0
    if executed:
        click.echo(done)
        return 0
    _print(sink)
    click.echo(f"a dry run: give --execute to {verb}")
    return 0


def _print(sink: SinkDescription) -> None:
    shown = console()
    shown.print(description_table(sink, _now_ms()))
    for epoch in sink.epochs:
        shown.print(epoch_table(epoch, _now_ms(), shown.width))


def _described(admin: Admin, name: str) -> SinkDescription:
    return admin.describe_sinks([name])[name]


def _document(sink: SinkDescription) -> dict[str, Any]:
    return {
        **sink._asdict(),
        "epochs": [
            {
                **epoch._asdict(),
                "participants": [
                    {**p._asdict(), "partitions": [tp._asdict() for tp in p.partitions]}
                    for p in epoch.participants
                ],
            }
            for epoch in sink.epochs
        ],
    }


def _now_ms() -> int:
    return SystemClock().now_ms()
