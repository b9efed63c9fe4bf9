"""`make demo`: a year of real flights through log, Spark and Delta, ending with the proof."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from flights.run import DemoOptions, run_demo
from headwater.cli.main import run_command
from headwater.system import SystemClock


@click.command()
@click.option("--out", default="demo-out", show_default=True, help="Folder for data and pictures.")
@click.option("--seconds", default=60.0, show_default=True, help="How long the year takes.")
@click.option("--port", default=19092, show_default=True, help="First port of the cluster.")
@click.option("--secure", is_flag=True, help="TLS, logins and ACLs; then search for secrets.")
@click.option("--keep", is_flag=True, help="Leave the cluster up at the end, until Ctrl-C.")
def demo(out: str, seconds: float, port: int, secure: bool, keep: bool) -> int:
    """Run the demo; exit code 1 for any difference."""
    reader = Path(__file__).resolve().with_name("plain_reader.py")
    options = DemoOptions(Path(out).resolve(), seconds, keep, port, reader, secure)
    return run_demo(options, SystemClock())


def _extend_pythonpath() -> None:
    """Let Spark's Python workers import `flights`: they inherit this process's PYTHONPATH."""
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


if __name__ == "__main__":
    _extend_pythonpath()
    logging.basicConfig(level=logging.ERROR)  # kazoo warns of the killed brokers' sessions
    sys.exit(run_command(demo))
