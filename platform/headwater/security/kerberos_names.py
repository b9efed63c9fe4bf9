"""Names of principals from Kerberos principals: sasl.kerberos.principal.to.local.rules. Pure.

The rules are those of MIT's auth_to_local, as Kafka's `KerberosShortNamer` reads them:
`RULE:[2:$1@$0](.*@REALM)s/@.*//`, with `/L` or `/U` at the end for lower and upper case; `DEFAULT`
takes the first component of principals of the default realm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import UsageError

KEY = "sasl.kerberos.principal.to.local.rules"
DEFAULT = "DEFAULT"
_PRINCIPAL = re.compile(r"([^/@]+)(?:/([^/@]+))?@([^/@]+)")
_RULE = re.compile(
    r"RULE:\[(\d):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?(?:/?([LU]))?"
)


@dataclass(frozen=True, slots=True)
class LocalNameRule:
    """One rule."""

    components: int
    form: str
    """`$0` stands for the realm, `$1` and `$2` for the components."""
    match: re.Pattern[str] | None
    search: re.Pattern[str] | None
    replacement: str
    is_repeated: bool
    case: str

    def apply(self, parts: Sequence[str]) -> str | None:
        """The name of the principal with these parts, realm first; None: the rule does not fit."""
        if len(parts) - 1 != self.components:
            return None
        name = re.sub(r"\$(\d)", lambda found: _part(parts, int(found[1])), self.form)
        if self.match is not None and not self.match.fullmatch(name):
            return None
        if self.search is not None:
            name = self.search.sub(self.replacement, name, count=0 if self.is_repeated else 1)
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()


def _part(parts: Sequence[str], number: int) -> str:
    return parts[number] if number < len(parts) else ""


class LocalNames:
    """The rules of one listener."""

    def __init__(self, rules: Sequence[str], realm: str) -> None:
        """`realm`: the default realm. Raises UsageError for a rule that cannot be read."""
        self._realm = realm
        self._rules = [None if rule.strip() == DEFAULT else _rule(rule) for rule in rules]

    def name_of(self, principal: str) -> str | None:
        """The name of `alice@REALM` or `kafka/host@REALM`; None when no rule gives one.

        As in Kafka, a name with `/` or `@` is none.
        """
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            return None
        first, second, realm = found.groups()
        parts = [realm, first] if second is None else [realm, first, second]
        for rule in self._rules:
            if rule is None:
                name = first if realm == self._realm else None
            else:
                name = rule.apply(parts)
            if name is not None:
                return name if name and not re.search(r"[/@]", name) else None
        return None


def _rule(text: str) -> LocalNameRule:
    found = _RULE.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError("it is neither DEFAULT nor RULE:[n:form](match)s/search/text/")
        components, form, match, search, text_after, repeats, case = found.groups()
        return LocalNameRule(
            int(components),
            form,
            re.compile(match) if match else None,
            re.compile(search) if search is not None else None,
            re.sub(r"\$(\d)", r"\\g<\1>", (text_after or "").replace("\\", "\\\\")),
            repeats is not None,
            case or "",
        )
    except (ValueError, re.error) as error:
        raise UsageError(f"config {KEY}: {text!r}: {error}") from None
