"""A filter over decoded records in CEL (Google's Common Expression Language). The one adapter of
the library `common-expression-language`.

Its integers have 64 bits: it would turn longer ones into doubles and compare wrongly, so a record
with one in a field that the filter uses is refused, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import cel
from cel.stdlib import EXTENSIONS

from headwater.errors import UsageError
from headwater_gateway.console.messages.filter_paths import ROOTS, Tree, narrowed, uses_of

EXPRESSION_CHARS_MAX = 2000
SHOWN_CHARS = 200
_LIBRARIES = ("strings", "math", "sets", "encoders")
_TYPES = frozenset(
    {"int", "uint", "double", "string", "bytes", "bool", "list", "map", "null_type", "type"}
)
_NAMESPACES = frozenset({"math", "strings", "sets", "base64"})
_FUNCTIONS = frozenset(
    {
        "size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string",
        "bytes", "bool", "timestamp", "duration", "type", "dyn", "has", "getFullYear", "getMonth",
        "getDate", "getDayOfMonth", "getDayOfYear", "getDayOfWeek", "getHours", "getMinutes",
        "getSeconds", "getMilliseconds", "max", "min",
    }
)  # fmt: skip
_EVALUATION_ERRORS = (TypeError, RuntimeError, ValueError, ArithmeticError)
_DOUBLE_MAX = float(1 << 63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, CEL's last."""


class Verdict(Enum):
    """What a filter says of a record."""

    MATCH = "match"
    NO_MATCH = "no match"
    MISSING = "missing field"
    TYPE_ERROR = "type error"
    TOO_LONG = "integer beyond 64 bits"
    UNSURE = "a number that may have been rounded"
    """Ask again with exact numbers."""


class RecordFilter:
    """A compiled expression. Not thread-safe."""

    def __init__(self, expression: str) -> None:
        """Raises UsageError that names the place, the unknown variable or function."""
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise UsageError(
                f"the filter has {len(expression)} characters: {EXPRESSION_CHARS_MAX} are the most"
            )
        try:
            self._program = cel.compile(expression)
        except ValueError as error:
            raise UsageError(f"the filter cannot be read: {_complaint(str(error))}") from None
        uses = uses_of(expression)
        self._check_names(uses.bound)
        self._trees: list[tuple[str, Tree | None]] = list(uses.trees.items())
        self._context = cel.Context()
        for library in _LIBRARIES:
            for name, function in EXTENSIONS[library].items():
                self._context.add_function(name, function)

    @property
    def variables(self) -> tuple[str, ...]:
        """Those of ROOTS that the expression uses: others need not be decoded."""
        return tuple(name for name, _ in self._trees)

    def judge(self, record: Mapping[str, Any], *, is_exact: bool = False) -> Verdict:
        """The verdict on `record`, which has the values of `variables`. `is_exact`: no number in it
        was rounded when it was decoded; else the verdict may be UNSURE."""
        for name, tree in self._trees:
            try:
                part = narrowed(record[name], tree)
                if _has_long_integer(part, is_exact):
                    return Verdict.TOO_LONG if is_exact else Verdict.UNSURE
                self._context.add_variable(name, part)
            except _EVALUATION_ERRORS:  # a value that nests too deep is one of them
                return Verdict.TYPE_ERROR
        try:
            found = self._program.execute(self._context)
        except LookupError:
            return Verdict.MISSING
        except _EVALUATION_ERRORS:
            return Verdict.TYPE_ERROR
        if found is True:
            return Verdict.MATCH
        return Verdict.NO_MATCH if found is False else Verdict.TYPE_ERROR

    def _check_names(self, bound: frozenset[str]) -> None:
        known = {*ROOTS, *_TYPES, *_NAMESPACES, *bound}
        for name in self._program.variables():
            if name not in known:
                raise UsageError(
                    f"the filter uses {name!r}, which is not known: use {', '.join(ROOTS)}; a field"
                    f" of the value is value.{name}"
                )
        functions = {*_FUNCTIONS, *(_short(name) for one in _LIBRARIES for name in EXTENSIONS[one])}
        for name in self._program.functions():
            if name.isidentifier() and not name.startswith("_") and name not in functions:
                raise UsageError(
                    f"the filter calls {name}(), which is not known: size, contains, startsWith,"
                    " endsWith, matches, lowerAscii and others are"
                )


def timestamp_of(ms: int) -> datetime | int:
    """A record's timestamp as CEL's; the number where CEL has no such year."""
    return _EPOCH + timedelta(milliseconds=ms) if 0 <= ms <= _TIMESTAMP_MS_MAX else ms


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _has_long_integer(value: Any, is_exact: bool) -> bool:
    """An integer beyond 64 bits, or a double that may have been one before it was decoded."""
    kind = type(value)
    if kind is int:
        return not -(1 << 63) <= value < 1 << 64
    if kind is float:
        return not is_exact and not -_DOUBLE_MAX < value < _DOUBLE_MAX
    if kind is dict:
        return any(_has_long_integer(one, is_exact) for one in value.values())
    return kind is list and any(_has_long_integer(one, is_exact) for one in value)


def _complaint(error: str) -> str:
    """The parser's complaint: place and cause, without the echo of the expression."""
    _, _, rest = error.partition("ERROR: ")
    first = (rest or error).splitlines()[0].removeprefix("<input>:")
    place, _, cause = first.partition(": ")
    line, _, column = place.partition(":")
    if not cause or not line.isdigit():
        return first[:SHOWN_CHARS]
    where = f"character {column}" if line == "1" else f"line {line}, character {column}"
    return f"{where}: {cause[:SHOWN_CHARS]}"
