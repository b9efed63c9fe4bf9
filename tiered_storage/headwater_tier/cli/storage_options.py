"""`--storage-option KEY=VALUE`: the options of an object store, on the command line.

Every user of the machine sees the arguments of a process: a secret is given by reference.
"""

from __future__ import annotations

import click

from headwater.errors import UsageError
from headwater.security.secret import is_reference
from headwater.security.store_options import check_no_secret

HELP = "An option of the object store; repeatable. Of a secret: KEY=env:NAME or KEY=file:PATH."

tables_config_option = click.option(
    "--tables-config",
    metavar="FILE",
    help="Properties of tables, as brokers have them: headwater.tables.uri and .option.KEY.",
)
"""A file, as every user sees the arguments of a process."""


def storage_options(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` options as pairs. Raises UsageError, also for a secret."""
    pairs = []
    for option in given:
        key, found, value = option.partition("=")
        if not found or not key:
            raise UsageError("--storage-option: give KEY=VALUE")
        pairs.append((key, value))
    why = (
        "every user of the machine sees the arguments of a process; give KEY=env:NAME or "
        "KEY=file:PATH, or a file of properties (--tables-config) where the command has that option"
    )
    check_no_secret(pairs, "--storage-option ", is_reference, why)
    return tuple(pairs)
