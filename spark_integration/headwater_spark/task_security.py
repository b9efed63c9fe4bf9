"""`kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`: how drivers and tasks log in. Pure.

Spark keeps options in plans and ships them to tasks, so a secret in them is refused: they hold
references (`env:NAME`, `file:PATH`), which every process follows for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headwater.errors import UsageError
from headwater.ports.credentials import Credentials
from headwater.security.client_keys import SECRETS, is_security_key, security_properties
from headwater.security.client_security import (
    JAAS,
    MECHANISM,
    PROTOCOL,
    SCRAM_MECHANISMS,
    USERNAME,
    credentials_of,
)
from headwater.security.jaas import LoginModule, parse_jaas
from headwater.security.protocol import security_protocol
from headwater.security.secret import is_readable_in_tasks, is_reference, resolved

PREFIX = "kafka."
TOKENS = "headwater.delegation.token"
_SECRETS_OF_JAAS = ("password", "clientsecret")


@dataclass(frozen=True, slots=True)
class TaskSecurity:
    """The security properties of a query or job, without any password. Picklable; goes to tasks."""

    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    uses_tokens: bool = False
    """True where tasks log in with a delegation token that the driver gets (`task_tokens`)."""

    def credentials(self) -> Credentials:
        """The credentials in this process. Raises UsageError, as for a variable that is not set."""
        return credentials_of(dict(self.properties))

    @property
    def user(self) -> str | None:
        """The user of a PLAIN or SCRAM login; None where only the broker knows it."""
        found = dict(self.properties)
        if found.get(MECHANISM, "").upper() not in ("PLAIN", *SCRAM_MECHANISMS):
            return None
        line = resolved(JAAS, found.get(JAAS, ""))
        options = parse_jaas(line).options if line else {}
        return resolved(USERNAME, options.get("username", found.get(USERNAME, "")))

    def with_token(self, token_id: str, password: str) -> TaskSecurity:
        """The same, logging in with a delegation token instead."""
        kept = {n: t for n, t in self.properties if not n.startswith("sasl.")}
        line = (
            f'{LoginModule.SCRAM.value} required username="{token_id}" password="{password}" '
            'tokenauth="true";'
        )
        login = {MECHANISM: SCRAM_MECHANISMS[-1], JAAS: line}
        return TaskSecurity(tuple(sorted({**kept, **login}.items())))


NO_SECURITY = TaskSecurity()


def is_security_option(name: str) -> bool:
    """True for an option of Spark that belongs here."""
    return name.lower() == TOKENS or is_security_key(name.lower().removeprefix(PREFIX))


def task_security(options: Mapping[str, str]) -> TaskSecurity:
    """The security of a reader's or writer's options (`kafka.*`)."""
    given = {name.lower(): str(text) for name, text in options.items() if is_security_option(name)}
    uses_tokens = _flag(given.pop(TOKENS, "false"))
    found = shipped(
        {name.removeprefix(PREFIX): text for name, text in given.items()}, uses_tokens=uses_tokens
    )
    protocol = security_protocol(dict(found.properties).get(PROTOCOL, "PLAINTEXT"))
    if uses_tokens and not protocol.uses_sasl:
        raise UsageError(
            f"{TOKENS} is true, but kafka.{PROTOCOL} is {protocol.name}: tasks log in with a token "
            "by SCRAM, so set SASL_SSL"
        )
    return replace(found, uses_tokens=uses_tokens)


def _flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise UsageError(f"option {TOKENS!r} must be true or false, not {text!r}")
    return text.strip().lower() == "true"


def shipped(properties: Mapping[str, str], *, uses_tokens: bool = False) -> TaskSecurity:
    """The security of a client's properties, to be given to tasks. Raises UsageError for an option
    that is unknown or holds a secret, or a reference that tasks cannot follow: that of a login may
    then be any, if they use tokens."""
    found = security_properties(properties)
    may_be = is_reference if uses_tokens else is_readable_in_tasks
    for name, text in found.items():
        if name == JAAS and not may_be(text):
            _check_jaas(text, may_be)
        elif name in SECRETS:
            of_login = name.startswith("sasl.")
            _check(f"kafka.{name}", text, may_be if of_login else is_readable_in_tasks)
    return TaskSecurity(tuple(sorted(found.items())))


def _check_jaas(text: str, may_be: Callable[[str], bool]) -> None:
    for name, value in parse_jaas(text).options.items():
        if name.lower() in _SECRETS_OF_JAAS:
            _check(f"{name} in kafka.{JAAS}", value, may_be)


def _check(name: str, text: str, may_be: Callable[[str], bool]) -> None:
    if not may_be(text):
        raise UsageError(
            f"{name} is no reference that Spark's tasks can follow: plans and event logs would "
            "keep a secret; give env:NAME or file:PATH, set on the driver and on each executor"
        )
