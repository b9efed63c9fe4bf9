"""Each `headwater` command on a page of `docs/` exists, with the options that it is given there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from docs_pages import DOCS, ROOT
from headwater.cli.main import command_line

PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(r"^ {4,}(?:.*\| *)?(headwater .*)$", re.MULTILINE)
INLINE = re.compile(r"`(headwater [a-z][^`]*)`")
HELP = ("--help", "-h", "--version")


def words_of(line: str) -> Iterator[list[str]]:
    """The words of each `headwater` command of a line of shell, without its comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    found: list[str] = []
    for word in (*lexer, ";"):
        if set(word) <= set("|&;<>"):
            if found[:1] == ["headwater"]:
                yield found[1:]
            found = []
        else:
            found.append(word)


def commands_of(page: str) -> Iterator[list[str]]:
    text = page.replace("\\\n", " ")
    for line in (*BLOCK.findall(text), *INLINE.findall(text)):
        yield from words_of(line.replace("[-", "-").replace("] ", " ").removesuffix("]"))


def options_of(command: click.Command) -> set[str]:
    """Its options; of a group those of all its commands: `headwater cluster --zookeeper`."""
    found = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found |= options_of(inner)
    return found


def problem(words: list[str]) -> str:
    """What a command line has that the program has not; empty without any."""
    command: click.Command = command_line()
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        inner = command.get_command(click.Context(command, info_name="headwater"), rest[0])
        if inner is None:
            return f"headwater {' '.join(words)}: no command {rest[0]}"
        command, rest = inner, rest[1:]
    given = {word.partition("=")[0] for word in rest if word.startswith("--")}
    unknown = given - options_of(command) - set(HELP)
    return f"headwater {' '.join(words)}: no option {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_a_page_exists_with_its_options(page: Path) -> None:
    found = (problem(words) for words in commands_of(page.read_text()))
    assert [text for text in found if text] == []


def test_a_command_or_an_option_that_is_not_there_is_told() -> None:
    page = (
        "    seq 9 | headwater produce t --keys 1   # a comment --of no interest\n"
        "    headwater down && headwater upp --dir D\n"
        "    headwater tier run \\\n        --continously\n"
        "Then `headwater cluster --zookeeper`, `headwater tier status [TOPIC...] [--json]`.\n"
    )
    assert [text for words in commands_of(page) if (text := problem(words))] == [
        "headwater produce t --keys 1: no option --keys",
        "headwater upp --dir D: no command upp",
        "headwater tier run --continously: no option --continously",
    ]
