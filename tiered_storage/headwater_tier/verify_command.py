"""`headwater verify TOPIC`: compares a topic with its table; exit code 1 for any difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from headwater.cli.command_config import client_credentials
from headwater.cli.options import (
    bootstrap_options,
    bootstrap_servers,
    echo_json,
    json_option,
    open_admin,
)
from headwater.client.blocking.record_client import EARLIEST, LATEST, READ_COMMITTED, RecordClient
from headwater.columnar.decode import decode_batches
from headwater.columnar.schema import LOG_TABLE_COLUMNS
from headwater_tier.cli.storage_options import HELP, storage_options
from headwater_tier.delta import LogTable, TableStateError
from headwater_tier.table_location import locate
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.verify_derived import DerivedVerification, verify_derived
from headwater_tier.verify import PartitionReport, TableScan, compare, describe

WINDOW_OFFSETS = 1_000_000
"""Offsets compared at a time: limits memory to 32 bytes per row."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result: a report per partition, and problems of the table itself."""

    topic: str
    table_uri: str
    version: int
    partitions: tuple[PartitionReport, ...]
    problems: tuple[str, ...]
    hot_offsets: int
    """Offsets of the topic that are not tiered yet, and so not compared."""
    derived: DerivedVerification | None = None
    """Of the derived tables, with --deep."""

    @property
    def equal(self) -> bool:
        """True when topic and table have equal rows."""
        derived = self.derived is None or self.derived.equal
        return derived and not self.problems and all(r.equal for r in self.partitions)


@click.command()
@click.argument("topic")
@click.option("--tables-uri", metavar="URI", help="Base folder of tables when no config has one.")
@click.option(
    "--storage-option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help=HELP,
)
@click.option("--deep", is_flag=True, help="Compare the derived tables with the table, too.")
@bootstrap_options
@json_option
def verify(
    topic: str,
    deep: bool,
    tables_uri: str | None,
    options: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Compare TOPIC with its Delta table: row counts, checksums, and offsets that differ."""
    servers = bootstrap_servers(bootstrap_server, directory)
    with open_admin(servers, directory) as admin:
        location = locate(
            admin, topic, tables_uri=tables_uri, storage_options=storage_options(options)
        )
    with (
        RecordClient(
            servers, client_id="headwater-verify", credentials=client_credentials()
        ) as client,
        Progress(console=Console(stderr=True), transient=True, disable=as_json) as progress,
    ):
        found = verify_topic(client, location, progress)
    if deep:
        found = replace(found, derived=verify_derived(location))
    if as_json:
        echo_json(document(found))
    else:
        _print(found)
    return 0 if found.equal else 1


def verify_topic(
    client: RecordClient, location: TableLocation, progress: Progress | None = None
) -> Verification:
    """Compare the table's rows with the records that brokers serve for the same offsets."""
    scan = TableScan(location)
    problems = []
    try:
        LogTable(location)
    except TableStateError as error:
        problems.append(str(error))
    reports, hot = [], 0
    partitions = client.metadata([location.topic])[location.topic].partitions
    for partition in range(max(len(partitions), *(p + 1 for p in scan.snapshot.ends), 0)):
        key = (location.topic, partition)
        earliest = client.list_offsets({key: EARLIEST})[key].offset
        latest = client.list_offsets({key: LATEST}, READ_COMMITTED)[key].offset
        end = scan.snapshot.ends.get(partition)
        if end is None:
            hot += latest - earliest
            continue
        if end > latest:
            problems.append(
                f"partition {partition}: the table reaches to offset {end}, the topic to {latest}"
            )
        hot += max(0, latest - end)
        span = (max(scan.snapshot.starts.get(partition, 0), earliest), min(end, latest))
        reports.append(_verify_partition(client, scan, partition, span, progress))
    if hot and not reports:
        problems.append(
            f"nothing of {location.topic} is tiered yet: `headwater tier status {location.topic}` "
            f"says what the service does, `headwater tier run {location.topic}` does without it"
        )
    return Verification(
        location.topic, location.uri, scan.snapshot.version, tuple(reports), tuple(problems), hot
    )


def _verify_partition(
    client: RecordClient,
    scan: TableScan,
    partition: int,
    span: tuple[int, int],
    progress: Progress | None,
) -> PartitionReport:
    start, end = span
    topic = scan.location.topic
    task = None
    if progress is not None:
        task = progress.add_task(f"{topic}-{partition}", total=max(0, end - start))
    report = compare(partition, start, start, (), ())
    last = start
    while last < end:
        first = last
        last = min(end, first + WINDOW_OFFSETS)
        if end - last > WINDOW_OFFSETS:
            last = scan.next_offset(partition, last, end)  # a gap is one window, whatever its size
        report += compare(
            partition,
            first,
            last,
            topic_rows(client, topic, partition, first, last),
            scan.rows(partition, first, last),
        )
        if progress is not None and task is not None:
            progress.advance(task, last - first)
    return report


def topic_rows(
    client: RecordClient, topic: str, partition: int, start_offset: int, end_offset: int
) -> Iterator[pa.RecordBatch]:
    """The range's records for a read-committed consumer, in the log table's columns."""
    chunks = client.stream_batches(
        topic, partition, start_offset, end_offset, isolation=READ_COMMITTED
    )
    at = start_offset
    for chunk in chunks:
        decoded = decode_batches(
            chunk.records,
            start_offset=at,
            end_offset=end_offset,
            partition=partition,
            columns=LOG_TABLE_COLUMNS,
            aborted=chunk.aborted,
        )
        yield from decoded.chunks
        at = decoded.next_offset


def document(found: Verification) -> dict[str, Any]:
    """The result for JSON. Checksums are 16 hex digits, as JavaScript and jq read numbers as
    doubles and would round them above 2**53."""
    rows = {"equal": found.equal, **asdict(found)}
    for report in rows["partitions"]:
        for side in ("topic_digest", "table_digest"):
            report[side]["checksum"] = _hex(report[side]["checksum"])
    return rows


def _hex(checksum: int) -> str:
    return f"{checksum:016x}"


def _print(found: Verification) -> None:
    click.echo(f"{found.topic} and {found.table_uri} (version {found.version})")
    for report in found.partitions:
        span = f"partition {report.partition} [{report.start_offset}, {report.end_offset})"
        in_topic, in_table = report.topic_digest.rows, report.table_digest.rows
        rows = f"{in_topic:,} rows in the topic, {in_table:,} in the table"
        sums = _hex(report.topic_digest.checksum)
        if report.equal:
            click.echo(f"{span}: equal, {report.table_digest.rows:,} rows, checksum {sums}")
        else:
            click.echo(f"{span}: DIFFERENT, {rows}")
    for line in found.problems:
        click.echo(line)
    for report in found.partitions:
        for line in describe(report):
            click.echo(line)
    if found.derived is not None:
        _print_derived(found.derived)
    compared = sum(report.table_digest.rows for report in found.partitions)
    verdict = "equal" if found.equal else "DIFFERENT, see above"
    click.echo(
        f"{verdict}: {compared:,} rows compared; {found.hot_offsets:,} offsets not tiered yet"
    )


def _print_derived(found: DerivedVerification) -> None:
    click.echo(f"{found.typed_uri} (generation {found.generation})")
    for report in found.partitions:
        span = f"partition {report.partition} [{report.start_offset}, {report.end_offset})"
        rows = f"{report.typed_rows:,} typed and {report.quarantined:,} quarantined"
        verdict = "equal" if report.equal else "DIFFERENT"
        click.echo(f"{span}: {verdict}, {rows} of {report.log_rows:,} rows")
        for what in ("missing", "doubled", "foreign"):
            offsets = getattr(report, what)
            if offsets:
                click.echo(f"  {what}: offsets {', '.join(map(str, offsets))}")
    if found.quarantine_behind:
        click.echo(f"the quarantine is {found.quarantine_behind:,} offsets behind")
    if found.latest_rows is not None:
        differing = found.latest_differing
        verdict = f"DIFFERENT, {differing:,} keys" if differing else "equal"
        click.echo(f"latest: {verdict}, {found.latest_rows:,} rows")
