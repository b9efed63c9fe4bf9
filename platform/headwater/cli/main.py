"""`headwater`: loads the commands that the installed packages register, and turns every expected
error into one line.

Exit codes: 0 fine; 1 a difference or failure; 2 bad input; 130 interrupted.
"""

from __future__ import annotations

import difflib
import errno
import os
import sys
from importlib.metadata import EntryPoint, entry_points

import click

from headwater import __version__
from headwater.errors import EXIT_FAILED, EXIT_USAGE, HeadwaterError, UsageError, no_text
from headwater.extras import install_hint
from headwater.wire.schema import SchemaError

COMMAND_GROUP = "headwater.commands"
RUNTIME_EXTRA = "spark"
"""Brings everything that any command needs."""
EXIT_INTERRUPTED = 130
OTHER_PROTOCOL = "does a Kafka broker listen at this address, and one that knows this request?"


class Commands(click.Group):
    """A click group whose commands are entry points; each is imported only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every registered name, sorted."""
        return sorted(_entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None when nobody registered it."""
        entry = _entries().get(cmd_name)
        if entry is None:
            return None
        try:
            command = entry.load()
        except ImportError as error:
            return _unavailable(cmd_name, error)
        assert isinstance(command, click.Command), entry.value
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest names in the error."""
        name = args[0]
        if not name.startswith("-") and name not in _entries():
            near = difflib.get_close_matches(name, sorted(_entries()), n=2)
            hint = f": did you mean {' or '.join(near)}?" if near else ": see headwater --help"
            raise click.UsageError(f"no command {name!r}{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(__version__, "--version", prog_name="headwater")
def cli() -> None:
    """A Kafka-compatible log whose brokers run inside Spark and whose history is Delta tables."""


def main(arguments: list[str] | None = None) -> int:
    """`headwater`: run one command; the exit code."""
    return run_command(cli, arguments, "headwater")


def run_command(
    command: click.Command, arguments: list[str] | None = None, name: str | None = None
) -> int:
    """Run a command; the exit code. Never shows a traceback for an expected error."""
    try:
        result = command.main(arguments, prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_text:
        click.echo(help_text.format_message())
        return EXIT_USAGE
    except click.ClickException as error:
        return _told(error.format_message() + _help_of(error), EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except UsageError as error:
        return _told(str(error), EXIT_USAGE)
    except HeadwaterError as error:
        return _told(str(error), EXIT_FAILED)
    except UnicodeEncodeError as error:
        return _told(str(no_text(error)), EXIT_USAGE)
    except SchemaError as error:
        return _told(f"{error}: {OTHER_PROTOCOL}", EXIT_FAILED)
    except OSError as error:
        return _os_error(error)
    return result if isinstance(result, int) else 0


def _help_of(error: click.ClickException) -> str:
    """Where to read what is right: of words that are missing or unknown."""
    is_value = isinstance(error, click.BadParameter) and not isinstance(
        error, click.MissingParameter
    )
    if not isinstance(error, click.UsageError) or error.ctx is None or is_value:
        return ""
    return f" See {error.ctx.command_path} --help."


def _told(message: str, code: int) -> int:
    line = " ".join(message.split()).encode(errors="backslashreplace").decode()
    click.echo(f"headwater: {line}", err=True)
    return code


def _os_error(error: OSError) -> int:
    if error.errno == errno.EPIPE:  # `headwater consume ... | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - so that the flush at exit cannot fail
        return EXIT_FAILED
    where = f" ({error.filename})" if error.filename else ""
    return _told(f"{error.strerror or repr(error)}{where}", EXIT_FAILED)


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=COMMAND_GROUP)}


def _unavailable(name: str, error: ImportError) -> click.Command:
    """A stand-in for a command whose extra is not installed: it says so when run."""
    missing = error.name or str(error)
    remedy = install_hint(RUNTIME_EXTRA)
    text = f"`headwater {name}` needs {missing}, which is not installed: {remedy}"

    @click.command(
        name,
        short_help=f"(needs {missing})",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )
    def unavailable() -> None:
        raise UsageError(text)

    return unavailable
