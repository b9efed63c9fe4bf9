"""`headwater tier`: a group whose commands are entry points, so that each package adds its own.

`serve` and `status` need no Spark, `run` does: a command is imported when it is used.
"""

from __future__ import annotations

import click

from headwater.cli.main import Commands, registered_in

TIER_COMMAND_GROUP = "headwater.tier_commands"


class TierCommands(Commands):
    """The commands that the installed packages register under TIER_COMMAND_GROUP."""

    entries = staticmethod(registered_in(TIER_COMMAND_GROUP))


@click.group(cls=TierCommands)
def tier() -> None:
    """Move committed records into Delta tables, and maintain the tables."""
