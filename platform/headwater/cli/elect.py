"""`headwater elect`: preferred and unclean leader elections (KIP-460)."""

from __future__ import annotations

import click

from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.cli.partition_arguments import expand, name_of, read_text
from headwater.cli.reassign.plan import read_partitions
from headwater.client.admin.client import ElectionType
from headwater.client.admin.replicas import ELECTION_TYPES
from headwater.errors import EXIT_FAILED, ErrorCode, UsageError


@click.command()
@click.argument("kind", type=click.Choice(list(ELECTION_TYPES)), metavar="preferred|unclean")
@click.option("--partition", "wanted", multiple=True, metavar="TOPIC[:0,2]",
              help="Partitions to elect leaders of. May be repeated.")  # fmt: skip
@click.option("--path-to-json-file", "path", metavar="FILE",
              help='JSON: {"partitions": [{"topic": "t", "partition": 0}]}')  # fmt: skip
@click.option("--all", "--all-topic-partitions", "everything", is_flag=True,
              help="Every partition of every topic.")  # fmt: skip
@bootstrap_options
@json_option
def elect(
    kind: ElectionType,
    wanted: tuple[str, ...],
    path: str | None,
    everything: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Elect partition leaders.

    `preferred` makes the first replica of each partition the leader again. `unclean` elects any
    live replica of a partition that has no leader, and may lose records: those that only the
    replicas which are down have.
    """
    if everything + bool(wanted) + (path is not None) != 1:
        raise UsageError("give --partition TOPIC[:0,2] (repeatable), --path-to-json-file, or --all")
    listed = None if path is None else read_partitions(read_text(path), path)
    with open_admin(bootstrap_server, directory) as admin:
        rows = None if everything else listed or expand(admin, wanted, "--partition")
        outcomes = admin.elect_leaders(kind, rows)
    needless = ErrorCode.ELECTION_NOT_NEEDED
    failed = {tp: e for tp, e in outcomes.items() if e is not None and e.code is not needless}
    elected = [tp for tp, error in outcomes.items() if error is None]
    if as_json:
        echo_json(
            [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "elected": error is None,
                    "error": None if error is None else error.code.name,
                    "message": None if error is None else error.detail,
                }
                for tp, error in outcomes.items()
            ]
        )
        return EXIT_FAILED if failed else 0
    for tp in elected:
        click.echo(f"elected a leader of {name_of(tp)}")
    if not elected and not failed:
        click.echo("no election was needed")
    for tp, error in failed.items():
        click.echo(f"{name_of(tp)}: {error}", err=True)
    return EXIT_FAILED if failed else 0
