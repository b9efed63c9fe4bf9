"""`headwater verify-sink`: proves that brokers, checkpoint, topics and Delta table agree.

Starts no Spark and changes nothing. Exit code 1 for any disagreement.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import click
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from headwater.cli.command_config import client_credentials
from headwater.cli.options import bootstrap_options, bootstrap_servers, echo_json, json_option
from headwater.client.blocking.epoch_client import EpochClient
from headwater.client.blocking.record_client import EARLIEST, LATEST, READ_COMMITTED, RecordClient
from headwater.errors import EXIT_FAILED, UsageError
from headwater_spark.sink.commit_metadata import read_commit
from headwater_spark.sink_verification import (
    CheckpointFacts,
    KeyCounts,
    SinkFacts,
    TableCommit,
    TableFacts,
    duplicate_keys,
    key_problems,
    sink_problems,
    table_problems,
)
from headwater_tier.cli.storage_options import HELP, storage_options
from headwater_tier.delta_readers import UsersTable
from headwater_tier.verify_command import topic_rows

MATCHES = ("key", "value")


@dataclass(frozen=True, slots=True)
class Verified:
    """The result."""

    sink: str
    last_epoch: int | None
    epochs_in_table: int | None
    keys: int | None
    problems: tuple[str, ...] = field(default=())

    @property
    def agrees(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems


@click.command("verify-sink")
@click.option("--checkpoint", required=True, metavar="DIR", help="The query's checkpointLocation.")
@click.option("--sink-id", metavar="ID", help="Default: the query's id, from the checkpoint.")
@click.option("--table", metavar="URI", help="The Delta table of exactly_once().")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC",
              help="A topic of the sink; repeatable.")  # fmt: skip
@click.option("--key", "key_column", metavar="COLUMN",
              help="Compare this column of the table with the records of --topic.")  # fmt: skip
@click.option("--match", "match", default="key", show_default=True, metavar="key|value|value.FIELD",
              help="The part of a record that holds the key: its key, its value, or a field of its "
              "value in JSON.")  # fmt: skip
@click.option("--merged", is_flag=True,
              help="The table was merged: a key is in it once, however often in the topics.",
              )  # fmt: skip
@click.option("--storage-option", "options", multiple=True, metavar="KEY=VALUE",
              help=HELP)  # fmt: skip
@bootstrap_options
@json_option
def verify_sink(
    checkpoint: str,
    sink_id: str | None,
    table: str | None,
    topics: tuple[str, ...],
    key_column: str | None,
    match: str,
    merged: bool,
    options: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Prove that a query's sink, checkpoint, topics and Delta table have the same micro-batches.

    Stop the query first. Checked are: no epoch is open or prepared; the brokers' last epoch is the
    checkpoint's last batch; the table's history has every epoch once, and the same last one. With
    --topic and --key: every key is as often in the topics, for a reader of committed records, as in
    the table. With --topic alone: no key is there twice.
    """
    if (key_column is not None) and (table is None or not topics):
        raise UsageError("--key compares a column of --table with the records of --topic: give all")
    if merged and key_column is None:
        raise UsageError("--merged says how --key compares: give --key, --table and --topic, too")
    part_of(match)
    servers = bootstrap_servers(bootstrap_server, directory)
    users_table = None if table is None else UsersTable(table, dict(storage_options(options)))
    found = verify(servers, checkpoint, sink_id, users_table, topics, key_column, match, merged)
    if as_json:
        echo_json(
            {
                "agrees": found.agrees,
                "sink": found.sink,
                "last_epoch": found.last_epoch,
                "epochs_in_table": found.epochs_in_table,
                "keys": found.keys,
                "problems": list(found.problems),
            }
        )
    else:
        _print(found)
    return 0 if found.agrees else EXIT_FAILED


def verify(
    servers: str,
    checkpoint: str,
    sink_id: str | None,
    table: UsersTable | None,
    topics: Sequence[str] = (),
    key_column: str | None = None,
    match: str = "key",
    is_merged: bool = False,
) -> Verified:
    """Collect the facts and compare them. Raises HeadwaterError when something is not readable."""
    at_rest = read_checkpoint(checkpoint)
    sink = sink_id or at_rest.query_id
    with EpochClient(
        servers, client_id="headwater-verify-sink", credentials=client_credentials()
    ) as client:
        described = client.describe(sink)
    facts = None
    if described is not None:
        undecided = tuple((epoch.epoch, epoch.state) for epoch in described.epochs)
        facts = SinkFacts(described.owner, described.last_epoch, described.ticket, undecided)
    problems = sink_problems(facts, at_rest)
    in_table = None
    if table is not None:
        table_facts = read_table(table, sink)
        in_table = sum(commit.epoch is not None for commit in table_facts.commits)
        problems += table_problems(facts, table_facts)
    keys = None
    if topics:
        in_topics = topic_keys(servers, topics, match)
        keys = len(in_topics)
        if table is not None and key_column is not None:
            counts = counted(table.column(key_column))
            problems += key_problems(KeyCounts(in_topics, counts, is_merged))
        else:
            problems += duplicate_keys(in_topics)
    last = None if facts is None else facts.last_epoch
    return Verified(sink, last, in_table, keys, tuple(problems))


def read_checkpoint(location: str) -> CheckpointFacts:
    """What a checkpoint says. Raises UsageError when there is none."""
    if urlsplit(location).scheme:
        files, root = fs.FileSystem.from_uri(location)
    else:
        files, root = fs.LocalFileSystem(), location
    root = root.rstrip("/")
    try:
        with files.open_input_stream(f"{root}/metadata") as stream:
            query_id = str(json.loads(stream.read())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{location} is no checkpoint of a streaming query: {error}") from error
    return CheckpointFacts(
        query_id, _last_batch(files, f"{root}/offsets"), _last_batch(files, f"{root}/commits")
    )


def _last_batch(files: fs.FileSystem, folder: str) -> int | None:
    selector = fs.FileSelector(folder, allow_not_found=True)
    names = [entry.base_name for entry in files.get_file_info(selector)]
    return max((int(name) for name in names if name.isdigit()), default=None)


def read_table(table: UsersTable, sink: str) -> TableFacts:
    """What a table says about a sink."""
    commits = []
    for row in reversed(table.history()):
        found = read_commit(row.get("userMetadata"))
        if found is not None and found.sink == sink:
            commits.append(TableCommit(int(row["version"]), found.epoch, found.ticket))
    return TableFacts(tuple(commits), table.version_of(sink))


def topic_keys(servers: str, topics: Sequence[str], match: str) -> Counter[object]:
    """How often each key is in the topics, for a reader of committed records."""
    counts: Counter[object] = Counter()
    part = part_of(match)
    with RecordClient(
        servers, client_id="headwater-verify-sink", credentials=client_credentials()
    ) as client:
        for topic, found in client.metadata(topics).items():
            for partition in range(len(found.partitions)):
                at = (topic, partition)
                start = client.list_offsets({at: EARLIEST})[at].offset
                end = client.list_offsets({at: LATEST}, READ_COMMITTED)[at].offset
                for rows in topic_rows(client, topic, partition, start, end):
                    counts.update(counted(part(rows)))
    return counts


def part_of(match: str) -> Callable[[pa.RecordBatch], pa.Array]:
    """The part of records that `--match` names. Raises UsageError."""
    if match in MATCHES:
        return lambda rows: rows.column(match)
    name, dot, path = match.partition(".")
    if name != "value" or not dot or not path:
        raise UsageError(f"--match must be key, value or value.FIELD, not {match!r}")

    def field_of(rows: pa.RecordBatch) -> pa.Array:
        texts = rows.column("value").to_pylist()
        return pa.array([_text(_field(text, path)) for text in texts], pa.string())

    return field_of


def _field(text: bytes | None, path: str) -> object:
    try:
        found: Any = json.loads(text or b"null")
        for name in path.split("."):
            found = found[name]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"a record's value has no JSON field {path!r}: {text!r}") from error
    return found


def counted(values: pa.Array | pa.ChunkedArray) -> Counter[object]:
    """How often each value is there, as text: tables have numbers where topics have bytes."""
    rows = pc.value_counts(values)
    return Counter({_text(row["values"].as_py()): row["counts"].as_py() for row in rows})


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _print(found: Verified) -> None:
    seen = [f"last epoch {'none' if found.last_epoch is None else found.last_epoch}"]
    if found.epochs_in_table is not None:
        seen.append(f"{found.epochs_in_table:,} epochs in the table's history")
    if found.keys is not None:
        seen.append(f"{found.keys:,} keys")
    click.echo(f"sink {found.sink}: {', '.join(seen)}")
    for problem in found.problems:
        click.echo(problem)
    click.echo("agrees" if found.agrees else "DISAGREES, see above")


if __name__ == "__main__":
    verify_sink()
