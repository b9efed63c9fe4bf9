"""`--storage-option KEY=VALUE`: the options of an object store, on the command line."""

from __future__ import annotations

import click

from headwater.errors import UsageError

tables_config_option = click.option(
    "--tables-config",
    metavar="FILE",
    help="Properties of tables, as brokers have them: headwater.tables.uri and .option.KEY.",
)
"""A file, as every user sees the arguments of a process."""


def storage_options(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` options as pairs. Raises UsageError."""
    pairs = []
    for option in given:
        key, found, value = option.partition("=")
        if not found or not key:
            raise UsageError(f"--storage-option {option!r}: give KEY=VALUE")
        pairs.append((key, value))
    return tuple(pairs)
