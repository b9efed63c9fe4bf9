"""The broker's command line: options, logging, the loop, exit codes."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from headwater.errors import EXIT_FAILED, EXIT_USAGE, HeadwaterError, UsageError
from headwater_broker.app.config import load
from headwater_broker.app.lifecycle import announce_on_stdout, run
from headwater_broker.runtime import process
from headwater_broker.runtime.event_loop import MeasuredLoop


@click.command()
@click.option("--config", "path", type=click.Path(), help="Properties file with Kafka's names.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key, over the file."
)
@click.option("--log-level", default="INFO", show_default=True, help="Level of the log.")
def main(path: str | None, overrides: tuple[str, ...], log_level: str) -> None:
    """Run one Headwater broker until SIGTERM, or until a supervisor closes its stdin."""
    if process.is_managed():
        process.die_with_parent()
    process.ask_for_short_slices()
    process.raise_file_limit()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    lines = process.start_logging(log_level.upper())
    failure: HeadwaterError | None = None
    try:
        with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
            runner.run(run(load(path, overrides), announce_on_stdout))
    except HeadwaterError as error:
        failure = error
    finally:
        lines.stop()  # before the error is printed: a supervisor shows the last line
    sys.exit(0 if failure is None else _print_error(failure))


def _print_error(error: HeadwaterError) -> int:
    """Print the error as one line; the exit code."""
    text = str(error).replace("\n", " ")
    sys.stderr.write(f"headwater_broker: {text}\n")
    sys.stderr.flush()
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
