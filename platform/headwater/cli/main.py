"""`headwater`: the commands that the installed packages register as entry points of the group
`headwater.commands` (in pyproject.toml); an expected error is one line.

Exit codes: 0 success; 1 a failure, or a difference that was found; 2 bad input; 130 interrupted.
"""

from __future__ import annotations

import difflib
import errno
import logging
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points

import click

from headwater import __version__
from headwater.errors import EXIT_FAILED, EXIT_USAGE, HeadwaterError, UsageError, encoding_error
from headwater.extras import install_hint
from headwater.wire.schema import SchemaError

COMMAND_GROUP = "headwater.commands"
RUNTIME_EXTRA = "spark"
"""The optional dependencies with which every command works."""
EXIT_INTERRUPTED = 130
OTHER_PROTOCOL = "is there a Kafka broker at this address, and does it know this request?"
LOG_FORMAT = "headwater: %(message)s"

Entries = Callable[[], Mapping[str, EntryPoint]]
"""Finds the registered commands by their names."""


def registered_in(group: str) -> Entries:
    """The entry points of the installed packages under this name of a group."""
    return lambda: {entry.name: entry for entry in entry_points(group=group)}


registered_commands: Entries = registered_in(COMMAND_GROUP)
"""The commands of `headwater` itself."""


class Commands(click.Group):
    """A click group whose commands are entry points. A command is imported when it is used."""

    entries: Entries = staticmethod(registered_commands)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every registered name, sorted."""
        return sorted(self.entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None if it is not registered."""
        entry = self.entries().get(cmd_name)
        if entry is None:
            return None
        try:
            command = entry.load()
        except ImportError as error:
            return _unavailable(f"{ctx.command_path} {cmd_name}", cmd_name, error)
        assert isinstance(command, click.Command), entry.value
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest names in the error."""
        name = args[0]
        if not name.startswith("-") and name not in (known := self.entries()):
            near = difflib.get_close_matches(name, sorted(known), n=2)
            hint = (
                f"did you mean {' or '.join(near)}?" if near else f"see {ctx.command_path} --help"
            )
            raise click.UsageError(f"no command {name!r}: {hint}")
        return super().resolve_command(ctx, args)


def command_line(entries: Entries = registered_commands) -> click.Group:
    """The `headwater` command with these subcommands."""

    @click.group(
        cls=Commands,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        no_args_is_help=True,
    )
    @click.version_option(__version__, "--version", prog_name="headwater")
    def headwater() -> None:
        """A Kafka-compatible log whose brokers run inside Spark and whose history is Delta tables.

        Most commands find the cluster by --bootstrap-server, else by the environment variable
        HEADWATER_BOOTSTRAP_SERVERS, else by the folder of --dir.
        """

    headwater.entries = entries
    return headwater


def main(arguments: list[str] | None = None, entries: Entries = registered_commands) -> int:
    """`headwater`: run one command; the exit code."""
    # The client's warnings, such as a leader that cannot be reached, go to stderr.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format=LOG_FORMAT)
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    return run_command(command_line(entries), arguments, "headwater")


def run_command(
    command: click.Command,
    arguments: list[str] | None = None,
    name: str | None = None,
    *,
    settings: object = None,
) -> int:
    """Run a command; the exit code. An expected error never shows a traceback.

    `settings` become the command's context object: a test may shorten its waits.
    """
    try:
        result = command.main(arguments, prog_name=name, standalone_mode=False, obj=settings)
    except click.exceptions.NoArgsIsHelpError as help_text:
        click.echo(help_text.format_message())
        return EXIT_USAGE
    except click.ClickException as error:
        return _failed(error.format_message() + _help_of(error), EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except UsageError as error:
        return _failed(str(error), EXIT_USAGE)
    except HeadwaterError as error:
        return _failed(str(error), EXIT_FAILED)
    except UnicodeEncodeError as error:
        return _failed(str(encoding_error(error)), EXIT_USAGE)
    except SchemaError as error:
        return _failed(f"{error}: {OTHER_PROTOCOL}", EXIT_FAILED)
    except OSError as error:
        return _os_error(error)
    return result if isinstance(result, int) else 0


def _help_of(error: click.ClickException) -> str:
    """A pointer to the help, for a missing or an unknown word."""
    is_value = isinstance(error, click.BadParameter) and not isinstance(
        error, click.MissingParameter
    )
    if not isinstance(error, click.UsageError) or error.ctx is None or is_value:
        return ""
    return f" See {error.ctx.command_path} --help."


def _failed(message: str, code: int) -> int:
    line = " ".join(message.split()).encode(errors="backslashreplace").decode()
    click.echo(f"headwater: {line}", err=True)
    return code


def _os_error(error: OSError) -> int:
    if error.errno == errno.EPIPE:  # `headwater consume ... | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - so that the flush at exit cannot fail
        return EXIT_FAILED
    where = f" ({error.filename})" if error.filename else ""
    return _failed(f"{error.strerror or repr(error)}{where}", EXIT_FAILED)


def _unavailable(path: str, name: str, error: ImportError) -> click.Command:
    """A substitute for a command whose optional dependency is not installed: it names that."""
    missing = error.name or str(error)
    remedy = install_hint(RUNTIME_EXTRA)
    text = f"`{path}` needs {missing}, which is not installed: {remedy}"

    @click.command(
        name,
        short_help=f"(needs {missing})",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )
    def unavailable() -> None:
        raise UsageError(text)

    return unavailable
