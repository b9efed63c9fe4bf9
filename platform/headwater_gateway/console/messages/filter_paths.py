"""The fields of a filter, read from its tokens: a record is then handed over with these alone.

Only a path that is written out (`value.user["id"]`) narrows; any other use of a variable
(`size(value)`, `value[key]`) takes it whole, and a macro that binds the variable's name takes all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ROOTS = ("key", "value", "headers", "partition", "offset", "timestamp", "topic")
"""The variables of a filter."""
MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})
_LITERALS = frozenset({"true", "false", "null", "in"})
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<text>[rR]?(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))
    |(?P<bytes>(?:[bB][rR]?|[rR][bB])(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))
    |(?P<number>(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[uU]?)
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)

Tree = dict[str, "Tree | None"]
"""Field -> what is used below it; None: all of it."""


@dataclass(frozen=True, slots=True)
class Uses:
    """`trees`: by variable, None where it is used whole. `bound`: names that macros bind."""

    trees: Mapping[str, Tree | None]
    bound: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def uses_of(expression: str) -> Uses:
    """The uses of each variable of ROOTS that the expression names."""
    tokens = [
        _Token(str(found.lastgroup), found.group())
        for found in _TOKEN.finditer(expression)
        if found.lastgroup != "space"
    ]
    bound = frozenset(_bound(tokens))
    paths = list(_paths(tokens))
    if bound & set(ROOTS):
        paths = [path[:1] for path in paths]
    return Uses({root: _tree(root, paths) for root in ROOTS if _is_used(root, paths)}, bound)


def narrowed(value: Any, tree: Tree | None) -> Any:
    """The part of a value that the tree names. What is no object stays as it is."""
    if tree is None or type(value) is not dict:
        return value
    return {
        name: value[name] if below is None else narrowed(value[name], below)
        for name, below in tree.items()
        if name in value
    }


def _is_used(root: str, paths: Iterable[tuple[str, ...]]) -> bool:
    return any(path[0] == root for path in paths)


def _tree(root: str, paths: Iterable[tuple[str, ...]]) -> Tree | None:
    top: Tree = {}
    for path in paths:
        if path[0] != root:
            continue
        if len(path) == 1:
            return None
        _add(top, path[1:])
    return top


def _add(tree: Tree, path: tuple[str, ...]) -> None:
    at = tree
    for name in path[:-1]:
        below = at.setdefault(name, {})
        if below is None:
            return
        at = below
    at[path[-1]] = None


def _bound(tokens: list[_Token]) -> Iterable[str]:
    """Names that a macro binds: `.exists(x, ...)`; of two, the second too."""
    for at in range(len(tokens) - 3):
        is_macro = tokens[at].text in MACROS and tokens[at + 1].text == "("
        if is_macro and tokens[at + 2].kind == "name" and tokens[at + 3].text == ",":
            yield tokens[at + 2].text
            if at + 5 < len(tokens) and tokens[at + 5].text == ",":
                yield tokens[at + 4].text


def _paths(tokens: list[_Token]) -> Iterable[tuple[str, ...]]:
    for at, token in enumerate(tokens):
        if token.kind != "name" or token.text in _LITERALS:
            continue
        if (at and tokens[at - 1].text == ".") or _text(tokens, at + 1) == "(":
            continue
        yield (token.text, *_fields(tokens, at + 1))


def _fields(tokens: list[_Token], at: int) -> Iterable[str]:
    """The fields that follow a variable, up to the first step that is not written out."""
    while True:
        if _text(tokens, at) == "." and _kind(tokens, at + 1) == "name":
            if _text(tokens, at + 2) == "(":
                return
            yield tokens[at + 1].text
            at += 2
        elif (
            _text(tokens, at) == "["
            and _kind(tokens, at + 1) == "text"
            and _text(tokens, at + 2) == "]"
        ):
            name = _unquoted(tokens[at + 1].text)
            if name is None:
                return
            yield name
            at += 3
        else:
            return


def _unquoted(literal: str) -> str | None:
    """The text of a literal; None where CEL's escapes are not Python's."""
    try:
        return str(ast.literal_eval(literal))
    except (ValueError, SyntaxError):
        return None


def _text(tokens: list[_Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) else ""


def _kind(tokens: list[_Token], at: int) -> str:
    return tokens[at].kind if at < len(tokens) else ""
