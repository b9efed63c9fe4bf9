"""The tables of `headwater mirror`."""

from __future__ import annotations

import click

from headwater.cli.console_tables import console, table
from headwater.cli.partition_arguments import name_of
from headwater.mirror.promotion import Promotion
from headwater.mirror.status import MirrorStatus


def print_status(found: MirrorStatus) -> None:
    """The mirror, its partitions, and what stands in the way."""
    config = found.config
    title = f"mirror {config.mirror_id}: {found.word}, {config.source.servers} to "
    shown = table(f"{title}{config.target.servers}", "partition, >position, >source end, >lag")
    for p in found.partitions:
        end = "-" if p.end is None else str(p.end.last_stable_offset)
        lag = "-" if p.lag is None else str(p.lag)
        shown.add_row(name_of(p.tp), str(p.position.next_offset), end, lag)
    console().print(shown)
    for number, beat in sorted(found.state.heartbeats.items()):
        age_s = (found.now_ms - beat.time_ms) / 1000
        click.echo(f"bucket {number}: {beat.owner}, heartbeat {age_s:.1f} s ago")
    for text in found.troubles:
        click.echo(f"retried: {text}")
    if found.source_error:
        click.echo(f"the source's ends are those of the last heartbeats: {found.source_error}")
    for p in found.partitions:
        if p.stopped:
            click.echo(f"{name_of(p.tp)} is not mirrored: {p.stopped}", err=True)


def print_promotion(made: Promotion) -> None:
    """What the target has and what it lacks."""
    shown = table(
        f"mirror {made.config.mirror_id}: {made.config.target.servers} is promoted",
        "partition, >mirrored to, >source end, >records lacking",
    )
    gaps = {gap.tp: gap for gap in made.gaps}
    for p in made.partitions:
        gap = gaps.get(p.tp)
        lacking = "0"
        if gap is not None:
            lacking = f"<= {gap.end - gap.first}" if gap.records is None else str(gap.records)
        end = "-" if p.end is None else str(p.end.last_stable_offset)
        shown.add_row(name_of(p.tp), str(p.position.next_offset), end, lacking)
    console().print(shown)
    if made.source_error:
        click.echo(
            "the source cannot be read: its ends are those of the last heartbeats, and records "
            "that came later are not counted. Repeat this command once it can be read."
        )
    for p in made.partitions:
        if p.stopped:
            click.echo(f"{name_of(p.tp)} had stopped: {p.stopped}", err=True)
