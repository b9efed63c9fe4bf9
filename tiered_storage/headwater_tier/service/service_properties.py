"""`--tables-config FILE`: where tables are and how their storage is reached, as in brokers' files.

A file, not arguments: an object store's options are secrets, and every user sees arguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.java_properties import read_java_properties
from headwater.errors import UsageError
from headwater_tier.table_location import BROKER_URI_KEY

OPTION_PREFIX = "headwater.tables.option."
PREFIX = "HEADWATER_TABLES_OPTION_"
"""The same in the environment, as brokers take them too."""


def table_properties(
    path: str | None, environment: Mapping[str, str]
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """(the base folder of tables or "", the options of their storage). Raises UsageError."""
    rows = {} if path is None else read_java_properties(path, "--tables-config")
    for key in rows:
        if key != BROKER_URI_KEY and not key.startswith(OPTION_PREFIX):
            raise UsageError(
                f"{path}: {key} is no property of tables: give {BROKER_URI_KEY} or "
                f"{OPTION_PREFIX}KEY"
            )
    options = {k.removeprefix(OPTION_PREFIX): v for k, v in rows.items() if k != BROKER_URI_KEY}
    options |= {k.removeprefix(PREFIX): v for k, v in environment.items() if k.startswith(PREFIX)}
    return rows.get(BROKER_URI_KEY, ""), tuple(sorted(options.items()))
