"""`python -m fuzz --frames N --batches N [--seed S]`: spoil, feed, and tell what became of it.

It ends with an error at the first harm, and prints the bytes that did it. Memory is looked at after
every part. With `--seconds` it stops early and names the seed to go on with.
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
"""Codecs are compiled and buffers grow in the first part; what grows afterwards leaks."""
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
    """Part by part, each with a seed of its own; stops early when the time is over."""
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
    told = ", ".join(f"{times:,} {name}" for name, times in total.items())
    click.echo(
        f"{told}; no harm. {elapsed:.0f} s ({total[what] / worked:,.0f} per second of one core), "
        f"{after_warm >> 20} MiB after the first part, {process.memory_info().rss >> 20} MiB at "
        f"the end; next seed: {seed + number + 1}"
    )


@click.command()
@click.option("--frames", default=100_000, show_default=True, help="How many frames.")
@click.option("--batches", default=20_000, show_default=True, help="How many record batches.")
@click.option("--seed", default=1, show_default=True, help="Another one spoils otherwise.")
@click.option("--seconds", default=float("inf"), help="At most so long for each kind.")
def main(frames: int, batches: int, seed: int, seconds: float) -> None:
    """Feed spoiled frames to a broker and spoiled batches to everything that reads batches."""
    if frames:
        _run("frames", _frames, frames, FRAMES_PER_PART, seed, seconds)
    if batches:
        _run("batches", fuzz_batches, batches, BATCHES_PER_PART, seed, seconds)


if __name__ == "__main__":
    main()
