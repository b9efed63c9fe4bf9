"""`headwater tier typed | replay | retype TOPIC`: the derived tables of a topic. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import click

from headwater.cli.command_config import client_properties
from headwater.cli.options import echo_json
from headwater.errors import UsageError
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.cli.table_options import table_and_configs, table_location, table_options
from headwater_tier.delta import table_exists
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.declarations import declared_tables
from headwater_tier.typed.decoding import SchemaSource
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.follow_log import FollowResult, follow_topic
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.registry_client import RegistryClient
from headwater_tier.typed.replay import replay
from headwater_tier.typed.retype import retype
from headwater_tier.typed.tables_state import TypedState, typed_state
from headwater_tier.typed.typed_table import current_generation
from headwater_tier.typed.without_registry import WithoutRegistry

F = TypeVar("F", bound=Callable[..., Any])


def registry_option(function: F) -> F:
    """`--schema-registry`; the command's parameter is `schema_registry`."""
    return click.option(
        "--schema-registry", metavar="URL", help="The registry of framed and registered schemas."
    )(function)


def schema_source(url: str | None) -> SchemaSource:
    """The registry at a URL, or one that says how to name it."""
    return WithoutRegistry() if url is None else RegistryClient(url, client_properties())


@click.command("typed")
@table_options
@registry_option
@click.option("--follow", is_flag=True, help="First decode what the log table has more.")
@click.option("--accept", is_flag=True, help="Take over the table as someone else left it.")
def typed_tables(
    schema_registry: str | None, follow: bool, accept: bool, as_json: bool, **at: Any
) -> int:
    """Show TOPIC's typed table: rows, offsets behind the log table, records in quarantine."""
    location, configs = table_and_configs(at)
    if accept:
        _accept(location)
    if follow:
        schemas = schema_source(schema_registry)
        while True:
            turn = follow_topic(location, configs, schemas, SystemClock())
            _progress(turn)
            if turn.is_caught_up:
                break
    found = typed_state(location)
    if found is None:
        raise UsageError(absence(location.topic, configs))
    if as_json:
        echo_json(asdict(found))
    else:
        _show(found)
    return 0


@click.command("replay")
@table_options
@registry_option
def replay_topic(schema_registry: str | None, as_json: bool, **at: Any) -> int:
    """Move TOPIC's quarantined records that fit by now into its typed table."""
    location = table_location(at)
    done = replay(
        location,
        schema_source(schema_registry),
        SystemClock(),
        decoder_for=decoder_for,
        entropy=SystemEntropy(),
    )
    if as_json:
        echo_json({"topic": location.topic, **asdict(done)})
        return 0
    click.echo(f"{location.topic}: {done.admitted} records admitted, {done.left} stay quarantined")
    if done.known:
        click.echo(f"{done.known} were in the typed table already, and left the quarantine")
    return 0


@click.command("retype")
@table_options
@registry_option
def retype_topic(schema_registry: str | None, as_json: bool, **at: Any) -> int:
    """Build TOPIC's typed table anew by its configs of today, then put it in place."""
    location, configs = table_and_configs(at)
    done = retype(
        location,
        configs,
        schema_source(schema_registry),
        SystemClock(),
        decoder_for=decoder_for,
        entropy=SystemEntropy(),
        report=_progress,
    )
    if as_json:
        echo_json({"topic": location.topic, **asdict(done)})
    else:
        click.echo(
            f"{location.topic}: generation {done.generation} is in place, {done.rows} rows, "
            f"{done.quarantined} quarantined: {done.uri}"
        )
    return 0


def absence(topic: str, configs: Mapping[str, str]) -> str:
    """Why a topic with these configs has no typed table yet, and what makes one. Pure."""
    follow = f"`headwater tier typed {topic} --follow`"
    if configs.get("remote.storage.enable") == "true" and declared_tables(topic, configs):
        return (
            f"topic {topic} has no typed table yet: the tier service makes it after the first "
            f"records are in the log table (`headwater tier status {topic}`), {follow} without it"
        )
    return (
        f"topic {topic} has no typed table yet: set its configs remote.storage.enable=true and "
        f"headwater.value.format, and run `headwater tier serve`, or {follow}"
    )


def _accept(location: TableLocation) -> None:
    typed = current_generation(location, checked=False)
    if typed is None:
        raise UsageError(f"topic {location.topic} has no typed table to accept")
    typed.accept()
    for kind in (Kind.QUARANTINE, Kind.LATEST):
        place = derived(location, kind, typed.derived.generation)
        if table_exists(place.place):
            DerivedTable(place, checked=False).accept()


def _progress(turn: FollowResult) -> None:
    for problem in (turn.problem, turn.quarantine_problem, turn.latest_problem):
        if problem:
            click.echo(problem, err=True)
    if turn.rows or turn.quarantined:
        click.echo(
            f"{turn.topic}: {turn.rows} rows, {turn.quarantined} quarantined, "
            f"{turn.behind} offsets behind",
            err=True,
        )


def _show(found: TypedState) -> None:
    click.echo(f"{found.topic}: {found.uri} (generation {found.generation}, {found.format})")
    click.echo(f"  columns      {', '.join(found.columns)}")
    click.echo(f"  rows         {found.rows}")
    click.echo(f"  behind       {found.behind} offsets of the log table")
    click.echo(f"  quarantined  {found.quarantined}: {found.quarantine_uri}")
    if found.quarantine_behind:
        click.echo(f"  the quarantine is {found.quarantine_behind} offsets behind the rows")
    if found.latest_rows is not None:
        click.echo(f"  latest       {found.latest_rows} rows, one per key")
    for commit in found.foreign_commits:
        click.echo(f"  by others    {commit}")
