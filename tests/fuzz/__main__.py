"""`python -m fuzz --frames N --batches N [--seed S]`: mutated requests and record batches.

It fails at the first harm, and prints the bytes that did it. Memory is checked after every part.
With `--seconds` it stops early and prints the seed to continue with.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator

import click
import psutil

from fuzz.batches import fuzz_batches
from fuzz.frames import complaints, fuzz_frames

FRAMES_PER_PART = 100_000
BATCHES_PER_PART = 20_000
WARM_PARTS = 1
"""Codecs are compiled and buffers grow in the first part; growth after that is a leak."""
GROWTH_MAX_BYTES = 64 * 1024 * 1024

Counts = dict[str, int]


def _frames(count: int, seed: int) -> Counts:
    with complaints() as found:
        return asyncio.run(fuzz_frames(count, seed, found))


def _parts(count: int, size: int) -> Iterator[int]:
    for done in range(0, count, size):
        yield min(size, count - done)


def _run(
    what: str, fuzz: Callable[[int, int], Counts], count: int, size: int, seed: int, max_s: float
) -> None:
    """Run part by part, each with its own seed; stop early when the time is over."""
    process = psutil.Process()
    began, cpu, total = time.perf_counter(), time.process_time(), Counts()
    after_warm = process.memory_info().rss
    for number, part in enumerate(_parts(count, size)):
        try:
            found = fuzz(part, seed + number)
        except AssertionError as harm:
            click.echo(f"{what}, seed {seed + number}: {harm}", err=True)
            sys.exit(1)
        for name, times in found.items():
            total[name] = total.get(name, 0) + times
        rss = process.memory_info().rss
        if number < WARM_PARTS:
            after_warm = rss
        elif rss - after_warm > GROWTH_MAX_BYTES:
            click.echo(f"{what}: {after_warm >> 20} MiB have become {rss >> 20} MiB", err=True)
            sys.exit(1)
        if time.perf_counter() - began > max_s:
            break
    elapsed, worked = time.perf_counter() - began, time.process_time() - cpu
    summary = ", ".join(f"{times:,} {name}" for name, times in total.items())
    click.echo(
        f"{summary}; no harm. {elapsed:.0f} s ({total[what] / worked:,.0f} per CPU second), "
        f"{after_warm >> 20} MiB after the first part, {process.memory_info().rss >> 20} MiB at "
        f"the end; next seed: {seed + number + 1}"
    )


@click.command()
@click.option("--frames", default=100_000, show_default=True, help="Number of requests.")
@click.option("--batches", default=20_000, show_default=True, help="Number of record batches.")
@click.option("--seed", default=1, show_default=True, help="Seed of the mutations.")
@click.option("--seconds", default=float("inf"), help="Time limit per kind.")
def main(frames: int, batches: int, seed: int, seconds: float) -> None:
    """Feed mutated requests to a broker, and mutated batches to everything that reads batches."""
    if frames:
        _run("frames", _frames, frames, FRAMES_PER_PART, seed, seconds)
    if batches:
        _run("batches", fuzz_batches, batches, BATCHES_PER_PART, seed, seconds)


if __name__ == "__main__":
    main()
