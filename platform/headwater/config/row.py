"""One configuration key: type, default, bounds, documentation, and the parser of its values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import cast

from headwater.errors import UsageError

Value = int | float | bool | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
EVERY = "*"
SHOWN_CHARS_MAX = 200
"""Characters of a refused value that the message repeats: old replies carry 32,767 bytes only."""


class Kind(Enum):
    """Kafka's config types, by their names in Kafka's documentation."""

    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    LIST = "list"


class Scope(Enum):
    """On which resource a key may be set."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. A `default` of None: it has no value unless it is set."""

    name: str
    kind: Kind
    default: Value
    scope: Scope
    unit: str
    """"ms", "bytes", "" ..."""
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """The allowed values; of a list, those of its items."""
    broker_name: str = ""
    """Of a topic or group key: the broker key with its default (Kafka: "Server Default Property").
    """
    is_sensitive: bool = False
    is_dynamic: bool = True
    """False when a change needs a restart of the broker."""
    items: str = ""
    """Of a list: the regular expression of its items; a lone `*` is allowed too."""
    gap: int | None = None
    """A number within the bounds that is not allowed."""
    has_effect: bool = True
    """False for a key of Kafka that is accepted, stored and shown, and that nothing reads."""
    check_items: Callable[[Iterable[str]], object] | None = None
    """Of a list: raises UsageError for items that are not valid."""

    def parse(self, text: str) -> Value:
        """The value of `text`. Raises UsageError with key, value and remedy."""
        value = self._typed(text.strip())
        self._check(text, value)
        return value

    def integer_in(self, properties: Mapping[str, str]) -> int:
        """The value of an int or long key in `properties`, or its default. Raises UsageError."""
        text = properties.get(self.name)
        return cast(int, self.default if text is None else self.parse(text))

    def render(self, value: Value) -> str:
        """The text of a value, as in a properties file or a DescribeConfigs reply."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _typed(self, text: str) -> Value:
        if self.kind is Kind.STRING:
            return text
        if self.kind is Kind.LIST:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self._refusal(text, "use true or false")
            return text.lower() == "true"
        try:
            if not text.isascii() or "_" in text:  # Python parses 1_000, and digits of any script
                raise ValueError(text)
            return float(text) if self.kind is Kind.DOUBLE else int(text)
        except ValueError:
            raise self._refusal(text, f"use a number of type {self.kind.value}") from None

    def _check(self, text: str, value: Value) -> None:
        if self.choices:
            values = value if isinstance(value, tuple) else (value,)
            if any(v not in self.choices for v in values):
                shown = " or ".join(choice or "nothing" for choice in self.choices)
                raise self._refusal(text, f"use {shown}")
        listed = value if isinstance(value, tuple) and value != (EVERY,) else ()
        if self.items and not all(re.fullmatch(self.items, item) for item in listed):
            raise self._refusal(text, f"use {EVERY}, or items of the form {self.items}")
        if self.check_items is not None and isinstance(value, tuple):
            self.check_items(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.bounds()
            if value == self.gap:
                raise self._refusal(text, f"use another value than {self.gap}")
            if value != value or (low is not None and value < low):
                raise self._refusal(text, f"use a value of at least {low}")
            if high is not None and value > high:
                raise self._refusal(text, f"use a value of at most {high}")

    def bounds(self) -> tuple[float | None, float | None]:
        """(lowest, highest) allowed value; None: unbounded."""
        limit = {Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}.get(self.kind)
        high = self.maximum if self.maximum is not None else limit
        low = self.minimum if self.minimum is not None else (-limit - 1 if limit else None)
        return low, high

    def _refusal(self, text: str, remedy: str) -> UsageError:
        unit = f" (unit: {self.unit})" if self.unit else ""
        more = "..." if len(text) > SHOWN_CHARS_MAX else ""
        value = f"{text[:SHOWN_CHARS_MAX]!r}{more}"
        return UsageError(f"config {self.name}: value {value} is not valid; {remedy}{unit}")
