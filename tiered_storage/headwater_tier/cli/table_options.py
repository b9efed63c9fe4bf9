"""The options by which a command of `headwater tier` finds a topic's tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headwater.cli.options import bootstrap_options, json_option, open_admin
from headwater_tier.cli.storage_options import HELP, storage_options
from headwater_tier.table_location import locate
from headwater_tier.table_names import TableLocation

F = TypeVar("F", bound=Callable[..., Any])


def table_options(function: F) -> F:
    """TOPIC and the options that locate its table; the command gets them as `at`."""
    for option in (
        click.option(
            "--tables-uri", metavar="URI", help="Base folder of tables when no config has one."
        ),
        click.option(
            "--storage-option",
            "options",
            multiple=True,
            metavar="KEY=VALUE",
            help=HELP,
        ),
    ):
        function = option(function)
    return click.argument("topic")(json_option(bootstrap_options(function)))


def table_location(at: dict[str, Any]) -> TableLocation:
    """The log table that the options mean. Raises UsageError, KafkaError."""
    return table_and_configs(at)[0]


def table_and_configs(at: dict[str, Any]) -> tuple[TableLocation, dict[str, str]]:
    """The log table that the options mean, and the topic's configs."""
    with open_admin(at["bootstrap_server"], at["directory"]) as admin:
        location = locate(
            admin,
            at["topic"],
            tables_uri=at["tables_uri"],
            storage_options=storage_options(at["options"]),
        )
        found = admin.describe_configs("topic", at["topic"])
    return location, {name: entry.value or "" for name, entry in found.items()}
