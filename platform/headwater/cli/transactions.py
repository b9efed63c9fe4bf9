"""`headwater transactions`: what is open, what blocks readers, and how an operator ends it."""

from __future__ import annotations

from typing import Any

import click

from headwater.cli.console_tables import console, table
from headwater.cli.existing_topics import check_partitions, existing_topics
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
from headwater.cli.partition_arguments import expand, name_of
from headwater.cli.transaction_ends import (
    abort_in_partition,
    check_own_transaction,
    end_transaction,
)
from headwater.cli.transaction_tables import (
    blocker_table,
    description_table,
    duration,
    hanging_table,
)
from headwater.client.admin.client import MAX_TRANSACTION_TIMEOUT_MS, Admin
from headwater.client.admin.transactions import OPEN_STATES, TRANSACTION_STATES
from headwater.client.transaction_values import (
    MarkerFailure,
    ProducerIdAndEpoch,
    TransactionDescription,
)
from headwater.client.values import TopicPartition
from headwater.errors import EXIT_FAILED, ErrorCode, KafkaError, UsageError
from headwater.system import SystemClock
from headwater.wire.primitives import INT16_MAX, INT32_MAX, INT64_MAX

DECIDED = {"PrepareCommit": "commit", "PrepareAbort": "abort"}
"""State -> the outcome that is decided: the coordinator still writes markers."""

producer_id_option = click.option(
    "--producer-id", type=int, callback=within(0, INT64_MAX), metavar="N",
    help="End only the transaction of this producer id.",
)  # fmt: skip
producer_epoch_option = click.option(
    "--producer-epoch", type=int, callback=within(0, INT16_MAX), metavar="N",
    help="The epoch of --producer-id.",
)  # fmt: skip


def _complete_state(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The states that begin like this, for shell completion."""
    return [s for s in TRANSACTION_STATES if s.lower().startswith(incomplete.lower())]


@click.group()
def transactions() -> None:
    """List and end transactions, and find out which of them block readers of read_committed."""


@transactions.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", shell_complete=_complete_state,
              help="Only transactional ids in this state. May be repeated.")  # fmt: skip
@click.option("--producer-id", "producer_ids", type=int, multiple=True, metavar="N",
              help="Only the transactional id of this producer. May be repeated.")  # fmt: skip
@click.option("--older-than", "older_than_ms", type=int, callback=within(0, INT64_MAX),
              metavar="MS", help="Only transactions that have been open for longer.")  # fmt: skip
@click.option("--pattern", metavar="REGEX",
              help="Only transactional ids that the regular expression matches as a whole.",
              )  # fmt: skip
@timeout_option
@bootstrap_options
@json_option
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    older_than_ms: int | None,
    pattern: str | None,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """List the transactional ids with their state, producer id and coordinator."""
    wanted = [_state(word) for word in states]
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        found = admin.list_transactions(
            states=wanted,
            producer_ids=producer_ids,
            older_than_ms=older_than_ms,
            transactional_id_pattern=pattern,
        )
    if as_json:
        echo_json([row._asdict() for row in found])
        return 0
    rows = table(None, "transactional id, state, >producer, >coordinator")
    for row in found:
        rows.add_row(row.transactional_id, row.state, str(row.producer_id), str(row.coordinator))
    console().print(rows)
    return 0


def _state(word: str) -> str:
    """Kafka's name of a state, whatever its case. Raises UsageError."""
    for state in TRANSACTION_STATES:
        if state.lower() == word.lower():
            return state
    known = ", ".join(TRANSACTION_STATES)
    raise UsageError(f"--state {word!r} is no state of a transaction: give one of {known}")


@transactions.command("show")
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
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
    """Show transactional ids: state, producer, client, timeout, partitions, and why markers are not
    written. The exit code is 1 when one does not exist."""
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        found, unknown = found_and_unknown(
            names, lambda name: _described(admin, name), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    if as_json:
        echo_json([_document(described) for described in found])
    else:
        for described in found:
            console().print(description_table(described, _now_ms()))
    for name in unknown:
        click.echo(f"transactional id {name} does not exist", err=True)
    return EXIT_FAILED if unknown else 0


@transactions.command("blockers")
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@click.option("--older-than", "older_than_ms", type=int, callback=within(0, INT64_MAX), default=0,
              metavar="MS", help="Only transactions that have been open for longer.")  # fmt: skip
@timeout_option
@bootstrap_options
@json_option
def blockers(
    names: tuple[str, ...],
    older_than_ms: int,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Show what blocks readers of read_committed: of each partition, the open transaction that
    holds the last stable offset.

    Without TOPIC, partitions of all topics are looked at. A transaction that is `hanging` will not
    end by itself: see `headwater transactions abort --help`. Principal, client, host and the
    marker's last error come from brokers of Headwater only.
    """
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        topics = list(existing_topics(admin, names)) if names else None
        found = [row for row in admin.transaction_blockers(topics) if row.age_ms >= older_than_ms]
    if as_json:
        echo_json(
            [{**row._asdict(), "marker_failure": _failure(row.marker_failure)} for row in found]
        )
        return 0
    if not found:
        click.echo("no open transaction blocks a reader")
        return 0
    shown = console()
    shown.print(blocker_table(found, shown.width))
    return 0


@transactions.command("find-hanging")
@click.argument("wanted", nargs=-1, metavar="[TOPIC[:0,2]]...")
@click.option("--broker-id", "broker", type=int, callback=within(0, INT32_MAX), metavar="N",
              help="Only partitions that this broker has a replica of.")  # fmt: skip
@click.option("--max-transaction-timeout", "max_timeout_ms", type=int,
              callback=within(0, INT32_MAX), default=MAX_TRANSACTION_TIMEOUT_MS,
              show_default=True, metavar="MS",
              help="Leave out transactions with a batch within this time.")  # fmt: skip
@timeout_option
@bootstrap_options
@json_option
def find_hanging(
    wanted: tuple[str, ...],
    broker: int | None,
    max_timeout_ms: int,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Find open transactions that no coordinator will end, as kafka-transactions.sh does (KIP-664).

    The exit code is 1 when there are any: they block readers of read_committed until
    `headwater transactions abort --partition` ends them.
    """
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        rows = _partitions(admin, wanted) if wanted else None
        found = admin.find_hanging_transactions(
            partitions=rows, broker=broker, max_transaction_timeout_ms=max_timeout_ms
        )
    if as_json:
        echo_json([row._asdict() for row in found])
    elif found:
        shown = console()
        shown.print(hanging_table(found, _now_ms(), shown.width))
    else:
        click.echo("no transaction hangs")
    return EXIT_FAILED if found else 0


@transactions.command("commit")
@click.argument("name", metavar="TRANSACTIONAL-ID")
@producer_id_option
@producer_epoch_option
@dry_run_option("the transaction")
@execute_option
@timeout_option
@bootstrap_options
@json_option
def commit(
    name: str,
    producer_id: int | None,
    producer_epoch: int | None,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Commit the open transaction of a transactional id, whose producer has prepared it and is
    gone.

    Without --execute the transaction is only shown. All that the producer has written becomes
    visible, complete or not: only the application knows whether it had flushed.
    """
    named = _named(producer_id, producer_epoch)
    check_dry_run(dry_run, execute)
    check_own_transaction(name)
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        described = _described(admin, name)
        is_due = named is not None or _is_open(described, "commit")
        if execute and is_due:
            end_transaction(admin, described, named or _producer(described), commit=True)
    return _report(described, "commit", executed=execute, as_json=as_json)


@transactions.command("abort")
@click.argument("name", required=False, metavar="[TRANSACTIONAL-ID]")
@click.option("--partition", metavar="TOPIC:N",
              help="Abort a hanging transaction of this partition.")  # fmt: skip
@click.option("--start-offset", type=int, callback=within(0, INT64_MAX), metavar="N",
              help="Where the transaction of --partition begins.")  # fmt: skip
@click.option("--force", is_flag=True,
              help="With --partition: also a transaction that its coordinator still knows. Brokers "
              "of Headwater refuse that.",
              )  # fmt: skip
@producer_id_option
@producer_epoch_option
@dry_run_option("the transaction")
@execute_option
@timeout_option
@bootstrap_options
@json_option
def abort(
    name: str | None,
    partition: str | None,
    start_offset: int | None,
    force: bool,
    producer_id: int | None,
    producer_epoch: int | None,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Abort an open transaction. Without --execute it is only shown.

    With TRANSACTIONAL-ID the coordinator aborts it in all of its partitions and fences the
    producer, which fails when it goes on. With --producer-id and --producer-epoch only this
    producer's transaction is aborted.

    With --partition and --start-offset (as `find-hanging` and `blockers` show them) an abort marker
    goes to that partition alone: for transactions that hang.
    """
    check_dry_run(dry_run, execute)
    named = _named(producer_id, producer_epoch)
    _check_choice(name, partition)
    if partition is None and (start_offset is not None or force):
        raise UsageError("--start-offset and --force go with --partition")
    if partition is not None and (start_offset is None or named is not None):
        raise UsageError("--partition goes with --start-offset, without --producer-id")
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        if partition is not None and start_offset is not None:
            return _abort_in_partition(
                admin, partition, start_offset, force=force, execute=execute, as_json=as_json
            )
        assert name is not None
        described = _described(admin, name)
        is_due = named is not None or _is_open(described, "abort")
        if execute and named is not None:
            end_transaction(admin, described, named, commit=False)
        elif execute and is_due:
            admin.fence_producers([name])
    return _report(described, "abort", executed=execute, as_json=as_json)


def _abort_in_partition(
    admin: Admin, partition: str, start_offset: int, *, force: bool, execute: bool, as_json: bool
) -> int:
    """Write an abort marker to one partition. Raises KafkaError unless the transaction hangs."""
    rows = _partitions(admin, [partition])
    if len(rows) != 1 or ":" not in partition:
        raise UsageError(f"--partition {partition!r}: give one partition, as in flights:0")
    [tp] = rows
    found = admin.find_hanging_transactions(partitions=rows, max_transaction_timeout_ms=0)
    hanging = next((row for row in found if row.first_offset == start_offset), None)
    if hanging is None and not force:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, _not_hanging(admin, tp, start_offset))
    if execute:
        abort_in_partition(admin, tp, start_offset)
    where = f"{name_of(tp)} from offset {start_offset}"
    if as_json:
        echo_json(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "first_offset": start_offset,
                "hanging": hanging is not None,
                "outcome": "abort",
                "executed": execute,
            }
        )
        return 0
    if hanging is not None:
        shown = console()
        shown.print(hanging_table([hanging], _now_ms(), shown.width))
    if execute:
        click.echo(f"aborted the transaction of {where}")
    else:
        click.echo(f"a dry run: give --execute to abort the transaction of {where}")
    return 0


def _not_hanging(admin: Admin, tp: TopicPartition, start_offset: int) -> str:
    """Why `abort --partition` refuses."""
    at = f"{name_of(tp)} from offset {start_offset}"
    open_here = {
        row.current_transaction_start_offset: row.producer_id
        for row in admin.describe_producers([tp])[tp]
        if row.current_transaction_start_offset is not None
    }
    producer_id = open_here.get(start_offset)
    if producer_id is None:
        there = ", ".join(map(str, sorted(open_here))) or "none"
        return f"no transaction of {at} is open; open ones begin at: {there}"
    owner = admin.list_transactions(producer_ids=[producer_id])
    name = owner[0].transactional_id if owner else f"of producer {producer_id}"
    return (
        f"the transaction of {at} does not hang: its coordinator will end it. "
        f"`headwater transactions abort {name}` aborts it in all partitions; --force writes an "
        "abort marker here all the same, and the other partitions may be committed"
    )


def _check_choice(name: str | None, partition: str | None) -> None:
    if name is not None:
        check_own_transaction(name)
    if name is None and partition is None:
        raise UsageError("which transaction? Give TRANSACTIONAL-ID or --partition TOPIC:N")
    if name is not None and partition is not None:
        raise UsageError("give TRANSACTIONAL-ID or --partition, not both")


def _named(producer_id: int | None, producer_epoch: int | None) -> ProducerIdAndEpoch | None:
    if (producer_id is None) != (producer_epoch is None):
        raise UsageError("give --producer-id and --producer-epoch, both or neither")
    if producer_id is None or producer_epoch is None:
        return None
    return ProducerIdAndEpoch(producer_id, producer_epoch)


def _producer(described: TransactionDescription) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(described.producer_id, described.producer_epoch)


def _is_open(described: TransactionDescription, outcome: str) -> bool:
    """True when the transaction is to be ended; False when this outcome is decided, and markers
    are on their way. Raises KafkaError(INVALID_TXN_STATE)."""
    name, state = described.transactional_id, described.state
    if state not in OPEN_STATES:
        text = f"transactional id {name} has no open transaction: it is {state}"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
    decided = DECIDED.get(state)
    if decided is not None and decided != outcome:
        text = f"the transaction of {name} is {state}: its {decided} is decided, markers are due"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
    return decided is None


def _report(
    described: TransactionDescription, outcome: str, *, executed: bool, as_json: bool
) -> int:
    if as_json:
        echo_json({**_document(described), "outcome": outcome, "executed": executed})
        return 0
    console().print(description_table(described, _now_ms()))
    name = described.transactional_id
    if DECIDED.get(described.state) == outcome:
        click.echo(f"its {outcome} is decided: the coordinator writes the markers")
    elif executed:
        done = "committed" if outcome == "commit" else "aborted"
        click.echo(f"{done} the transaction of {name}")
    else:
        click.echo(f"a dry run: give --execute to {outcome} it")
        if outcome == "abort":
            age_ms = None if described.start_ms is None else _now_ms() - described.start_ms
            since = "" if age_ms is None else f", open for {duration(max(0, age_ms))}"
            click.echo(f"the producer of {name}{since}, is fenced then")
    return 0


def _described(admin: Admin, name: str) -> TransactionDescription:
    return admin.describe_transactions([name])[name]


def _partitions(admin: Admin, wanted: tuple[str, ...] | list[str]) -> list[TopicPartition]:
    """Existing partitions. Raises UsageError, UnknownTopicOrPartitionError."""
    rows = expand(admin, wanted, "TOPIC")
    check_partitions(existing_topics(admin, {tp.topic for tp in rows}), rows)
    return rows


def _document(described: TransactionDescription) -> dict[str, Any]:
    return {
        **described._asdict(),
        "partitions": [tp._asdict() for tp in sorted(described.partitions)],
        "marker_failures": [_failure(failure) for failure in described.marker_failures],
    }


def _failure(failure: MarkerFailure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {**failure.partition._asdict(), **failure._asdict(), "partition": failure.partition[1]}


def _now_ms() -> int:
    return SystemClock().now_ms()
