"""From a client certificate's distinguished name to a principal (Kafka's `SslPrincipalMapper`).

`ssl.principal.mapping.rules` is a list of `DEFAULT` and `RULE:pattern/replacement/[LU]` (KIP-371);
the first rule whose pattern matches the whole name counts. Patterns are Python's regular
expressions, which agree with Java's in all that names need; replacements are Java's (`$1`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import HeadwaterError, UsageError

RULES_KEY = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_NEXT = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class NoMatchingRuleError(HeadwaterError):
    """No rule matches a distinguished name: its owner is not let in."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule. A `pattern` of None is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""
    """`L`, `U` or nothing."""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self.pattern.sub(self._replace, name)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)

    def _replace(self, match: re.Match[str]) -> str:
        def part(reference: re.Match[str]) -> str:
            escaped, digits = reference.groups()
            if escaped is not None:
                return escaped
            return _group(match, digits)

        return _REFERENCE.sub(part, self.replacement)


def _group(match: re.Match[str], digits: str) -> str:
    """The group with the longest number that exists; the rest of the digits is text, as in Java."""
    count = match.re.groups
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= count:
            return (match[int(digits[:end])] or "") + digits[end:]
    return "$" + digits


class PrincipalMapper:
    """The rules of one listener."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules

    def name_of(self, distinguished_name: str) -> str:
        """The principal's name. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of {RULES_KEY} matches {distinguished_name!r}")


def principal_mapper(text: str) -> PrincipalMapper:
    """The mapper of a value of `ssl.principal.mapping.rules`; empty: DEFAULT.

    Raises UsageError that names the first bad rule.
    """
    rules: list[_Rule] = []
    at, text = 0, text.strip()
    while at < len(text):
        match = _NEXT.match(text, at)
        if match is None:
            raise UsageError(
                f"config {RULES_KEY}: {text[at:]!r} is not a rule; "
                "write DEFAULT or RULE:pattern/replacement/ with L or U at the end, or neither"
            )
        rules.append(_rule(match))
        at = match.end()
    return PrincipalMapper(rules or [_Rule()])


def _rule(match: re.Match[str]) -> _Rule:
    default, pattern, replacement, case = match.groups()
    if default:
        return _Rule()
    try:
        return _Rule(re.compile(pattern), replacement, case)
    except re.error as error:
        raise UsageError(f"config {RULES_KEY}: pattern {pattern!r} is not valid: {error}") from None
