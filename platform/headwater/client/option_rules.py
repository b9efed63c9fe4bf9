"""Checks of client options: a type and bounds for each, and the nearest name of an unknown one.

`ProducerOptions`, `ConsumerOptions` and `AdminOptions` declare a rule per field with `option(...)`;
`checked` builds one of them from a constructor's arguments.
"""

from __future__ import annotations

import dataclasses
import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from headwater.client.addresses import parse_bootstrap
from headwater.client.errors import OptionError
from headwater.client.security_options import SECURITY_OPTIONS, credentials_from
from headwater.errors import UsageError
from headwater.wire.primitives import INT32_MAX, INT64_MAX

Rule = Callable[[str, Any], Any]
"""(option's name, value given) -> the value to use. Raises OptionError or UsageError."""
T = TypeVar("T")
NOWHERE: Mapping[str, str] = {}


def option(rule: Rule) -> Any:
    """A dataclass field whose value has to pass `rule`."""
    return dataclasses.field(metadata={"rule": rule})


def checked(
    owner: str,
    kind: type[T],
    arguments: Mapping[str, Any],
    unknown: Mapping[str, Any],
    elsewhere: Mapping[str, str] = NOWHERE,
) -> T:
    """The options dataclass `kind`, each field taken from `arguments` and checked.

    `owner` is the public class's name for messages. `unknown` are keywords that its signature does
    not name: those of security, which make the field `credentials`, and wrong ones; `elsewhere` has
    the remedy for wrong ones that another client has. Raises OptionError, UsageError.
    """
    fields = [f for f in dataclasses.fields(kind) if "rule" in f.metadata]  # type: ignore[arg-type]
    for name in unknown:
        if name in elsewhere:
            raise OptionError(f"{owner} has no option {name!r}: {elsewhere[name]}")
        if name not in SECURITY_OPTIONS:
            raise OptionError(
                unknown_option(owner, name, [*(f.name for f in fields), *SECURITY_OPTIONS])
            )
    values = {f.name: f.metadata["rule"](f.name, arguments[f.name]) for f in fields}
    return kind(**values, **({"credentials": credentials_from(unknown)} if unknown else {}))


def unknown_option(owner: str, name: str, known: Iterable[str]) -> str:
    """The message for an option that `owner` does not have, with the nearest one that it has."""
    spelled = name.replace(".", "_").replace("-", "_").lower()
    names = list(known)
    starting = [k for k in names if k.startswith(f"{spelled}_")]
    near = [spelled] if spelled in names else starting or difflib.get_close_matches(spelled, names)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{owner} has no option {name!r}{hint}"


def integer(low: int, high: int = INT32_MAX) -> Rule:
    """A whole number from `low` to `high`."""

    def rule(name: str, value: Any) -> int:
        number = as_integer(name, value)
        if not low <= number <= high:
            raise UsageError(f"{name} is {number}: give a whole number from {low} to {high}")
        return number

    return rule


def as_integer(name: str, value: Any) -> int:
    """`value` as int, numpy's integers included; a bool is none. Raises OptionError."""
    if isinstance(value, bool):
        raise OptionError(f"{name} is {value!r}, a bool: give a whole number")
    try:
        return operator.index(value)
    except TypeError:
        raise OptionError(
            f"{name} is {value!r}, of type {type(value).__name__}: give a whole number"
        ) from None


def positive(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    return int(integer(1, INT64_MAX)(name, value))


def number(low: float) -> Rule:
    """A finite number, whole or not, of at least `low`."""

    def rule(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise OptionError(f"{name} is {value!r}, of type {type(value).__name__}: give a number")
        if not low <= value <= INT64_MAX:
            raise UsageError(f"{name} is {value!r}: give a number of at least {low:g}")
        return value

    return rule


def flag(name: str, value: Any) -> bool:
    """True or False. The text "false" is refused: it would count as true."""
    if not isinstance(value, bool):
        raise OptionError(
            f"{name} is {value!r}, of type {type(value).__name__}: give True or False"
        )
    return value


def text(name: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise OptionError(f"{name} is {value!r}, of type {type(value).__name__}: give a string")
    return value


def name_text(name: str, value: Any) -> str:
    """A string that is not empty."""
    if not text(name, value).strip():
        raise UsageError(f"{name} is empty")
    return str(value)


def function(name: str, value: Any) -> Any:
    """Something that can be called."""
    if not callable(value):
        raise OptionError(f"{name} is {value!r}, of type {type(value).__name__}: give a function")
    return value


def optional(rule: Rule) -> Rule:
    """None, or what `rule` allows."""
    return lambda name, value: None if value is None else rule(name, value)


def one_of(words: Mapping[Any, T]) -> Callable[[str, Any], T]:
    """One of the keys; gives its value."""

    def rule(name: str, value: Any) -> T:
        known = isinstance(value, str | int) and not isinstance(value, bool) and value in words
        if not known:
            listed = ", ".join(dict.fromkeys(repr(w) for w in words))
            raise UsageError(f"{name} is {value!r}: give one of {listed}")
        return words[value]

    return rule


def bootstrap(name: str, value: Any) -> list[tuple[str, int]]:
    """`bootstrap_servers`, as (host, port) pairs."""
    return parse_bootstrap(value)
