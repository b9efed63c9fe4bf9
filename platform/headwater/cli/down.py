"""`headwater down`: stop a cluster and check that none of its processes is left."""

from __future__ import annotations

import click

from headwater.cli.options import dir_option, echo_json, json_option
from headwater.local.daemon import cluster_folder
from headwater.local.stop import stop_cluster


@click.command()
@dir_option
@json_option
def down(directory: str, as_json: bool) -> int:
    """Stop the cluster of a folder. Brokers drain first; data stays; no process is left."""
    stopped = stop_cluster(cluster_folder(directory))
    if as_json:
        killed = [process.name for process in stopped.killed]
        echo_json(
            {"was_running": stopped.was_running, "processes": stopped.processes, "killed": killed}
        )
    elif not stopped.was_running:
        click.echo(f"no cluster runs in {directory}")
    else:
        click.echo(f"stopped: {stopped.processes} processes ended, none is left")
        for process in stopped.killed:
            click.echo(f"  {process.name} (pid {process.pid}) had to be killed", err=True)
    return 0
