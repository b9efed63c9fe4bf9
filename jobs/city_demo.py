"""`make city`: a day of a city's cameras through log, Spark and Delta, ending with the proof."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from city.run import CityOptions, run_city
from city.world import WorldPlan
from headwater.cli.main import run_command
from headwater.system import SystemClock

DEFAULT = WorldPlan()


@click.command()
@click.option("--out", default="city-out", show_default=True, help="Folder for all data.")
@click.option("--seconds", default=240.0, show_default=True, help="How long the day takes.")
@click.option("--port", default=24092, show_default=True, help="First port of the cluster.")
@click.option("--pages-port", default=8085, show_default=True, help="Of the live pages.")
@click.option("--vehicles", default=DEFAULT.vehicles, show_default=True, help="Captures, about.")
@click.option("--faces", default=DEFAULT.faces, show_default=True, help="Captures, about.")
@click.option("--seed", default=DEFAULT.seed, show_default=True, help="Of the city and its day.")
@click.option("--notifier", help="Tell alarms to this function too: MODULE:FUNCTION.")
@click.option("--within", type=float, help="Fail when start, day and proof take more seconds.")
@click.option("--keep", is_flag=True, help="Leave the city up at the end, until Ctrl-C.")
def city(
    out: str,
    seconds: float,
    port: int,
    pages_port: int,
    vehicles: int,
    faces: int,
    seed: int,
    notifier: str | None,
    within: float | None,
    keep: bool,
) -> int:
    """Run the city's day; exit code 1 for any figure that differs from the truth."""
    plan = WorldPlan(seed=seed, vehicles=vehicles, faces=faces)
    options = CityOptions(
        Path(out).resolve(), seconds, port, pages_port, keep, notifier, plan, within
    )
    return run_city(options, SystemClock())


def _extend_pythonpath() -> None:
    """Let Spark's Python workers import `city`: they inherit this process's PYTHONPATH."""
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


if __name__ == "__main__":
    _extend_pythonpath()
    logging.basicConfig(level=logging.ERROR)
    # What a callback of Spark raises when its site is lost: its query tells it, too.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    sys.exit(run_command(city))
