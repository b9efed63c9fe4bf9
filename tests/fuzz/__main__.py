"""`python -m fuzz --frames N --batches N --logins BYTES`: mutated requests, batches and logins.

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
from fuzz.logins import GSSAPI, PARSERS, Outcome, fuzz_login
from kerberos_realm import IS_THERE as KDC_IS_THERE

FRAMES_PER_PART = 100_000
BATCHES_PER_PART = 20_000
LOGIN_BYTES_PER_PART = 2_500_000
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


def _logins(parser: str, size: int, seed: int, max_s: float) -> None:
    """Run one parser part by part, each with its own seed; stop early when the time is over."""
    process, began = psutil.Process(), time.perf_counter()
    outcomes: list[Outcome] = []
    after_warm = rss = 0
    for number, part in enumerate(_parts(size, LOGIN_BYTES_PER_PART)):
        try:
            with complaints() as found:
                outcomes.append(asyncio.run(fuzz_login(parser, part, seed + number, found)))
        except AssertionError as harm:
            click.echo(f"{parser}, seed {seed + number}: {harm}", err=True)
            sys.exit(1)
        rss = process.memory_info().rss
        after_warm = after_warm or rss
        if rss - after_warm > GROWTH_MAX_BYTES:
            click.echo(f"{parser}: {after_warm >> 20} MiB have become {rss >> 20} MiB", err=True)
            sys.exit(1)
        if time.perf_counter() - began > max_s:
            break
    click.echo(
        f"{parser}: {sum(o.sent for o in outcomes):,} bytes in "
        f"{sum(o.attempts for o in outcomes):,} logins, {sum(o.closed for o in outcomes):,} ended "
        f"by the broker; no harm. {time.perf_counter() - began:.0f} s, the loop kept for at most "
        f"{max(o.longest_s for o in outcomes) * 1e3:.1f} ms, {after_warm >> 20} MiB after the "
        f"first part, {rss >> 20} MiB at the end"
    )


@click.command()
@click.option("--frames", default=100_000, show_default=True, help="Number of requests.")
@click.option("--batches", default=20_000, show_default=True, help="Number of record batches.")
@click.option("--logins", default=1_000_000, show_default=True, help="Bytes per login's parser.")
@click.option("--parser", type=click.Choice([*PARSERS]), help="Only this parser of logins.")
@click.option("--seed", default=1, show_default=True, help="Seed of the mutations.")
@click.option("--seconds", default=float("inf"), help="Time limit per kind.")
def main(
    frames: int, batches: int, logins: int, parser: str | None, seed: int, seconds: float
) -> None:
    """Feed mutated requests and logins to a broker, and mutated batches to all that reads them."""
    if frames:
        _run("frames", _frames, frames, FRAMES_PER_PART, seed, seconds)
    if batches:
        _run("batches", fuzz_batches, batches, BATCHES_PER_PART, seed, seconds)
    for name in [parser] if parser else PARSERS:
        if name == GSSAPI and not KDC_IS_THERE:
            click.echo(f"{GSSAPI}: not run: no KDC (apt install krb5-kdc)")
        elif logins:
            _logins(name, logins, seed, seconds)


if __name__ == "__main__":
    main()
