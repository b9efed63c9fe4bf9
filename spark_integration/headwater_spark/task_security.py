"""How drivers and tasks log in: `kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`, a file.

Spark keeps options in plans and ships them to tasks, so a secret in them is refused: they hold
references (`env:NAME`, `file:PATH`), or the path of a file with the client's properties. Tasks get
a delegation token where brokers give one (`task_tokens`); else they log in as the driver does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from headwater.config.java_properties import read_java_properties
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
CLIENT_FILE = "headwater.client.properties"
TRUST_LOCATION = "ssl.truststore.location"
TRUST_CERTIFICATES = "ssl.truststore.certificates"
CERTIFICATE_MARK = b"-----BEGIN CERTIFICATE-----"
_TRUST_FILE = (TRUST_LOCATION, "ssl.truststore.type", "ssl.truststore.password")
_SECRETS_OF_JAAS = ("password", "clientsecret")


class Tokens(Enum):
    """Whether tasks log in with a delegation token that the driver gets."""

    ALWAYS = "true"
    NEVER = "false"
    IF_GIVEN = "auto"
    """Where the brokers give one; else as the driver does."""


@dataclass(frozen=True, slots=True)
class TaskSecurity:
    """The security properties of a query or job, without any password. Picklable; goes to tasks."""

    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tokens: Tokens = Tokens.NEVER
    file: str = ""
    """A file of the client's properties, under `properties`; each process reads it for itself."""

    def found(self) -> dict[str, str]:
        """The properties and those of the file, as this process finds them. Raises UsageError."""
        if not self.file:
            return dict(self.properties)
        rows = security_properties(read_java_properties(self.file, CLIENT_FILE))
        return {**rows, **dict(self.properties)}

    def credentials(self) -> Credentials:
        """The credentials in this process. Raises UsageError, as for a variable that is not set."""
        return credentials_of(self.found())

    @property
    def user(self) -> str | None:
        """The user of a PLAIN or SCRAM login; None where only the broker knows it."""
        found = self.found()
        if found.get(MECHANISM, "").upper() not in ("PLAIN", *SCRAM_MECHANISMS):
            return None
        line = resolved(JAAS, found.get(JAAS, ""))
        options = parse_jaas(line).options if line else {}
        return resolved(USERNAME, options.get("username", found.get(USERNAME, "")))

    @property
    def uses_sasl(self) -> bool:
        """True where a token can take the login's place. Raises UsageError."""
        return security_protocol(self.found().get(PROTOCOL, "PLAINTEXT")).uses_sasl

    def with_token(self, token_id: str, password: str) -> TaskSecurity:
        """The same, logging in with a delegation token instead. Tasks need no file for it."""
        kept = {n: t for n, t in self.found().items() if not n.startswith("sasl.")}
        for name, text in kept.items():
            if name in SECRETS:
                _check(name, text, is_readable_in_tasks)
        line = (
            f'{LoginModule.SCRAM.value} required username="{token_id}" password="{password}" '
            'tokenauth="true";'
        )
        login = {MECHANISM: SCRAM_MECHANISMS[-1], JAAS: line}
        return TaskSecurity(tuple(sorted({**_with_trusted(kept), **login}.items())))


def _with_trusted(properties: dict[str, str]) -> dict[str, str]:
    """The properties with the trusted certificates in them, instead of a PEM file's name: a task
    may run on a machine without the file."""
    try:
        content = Path(properties.get(TRUST_LOCATION, "")).expanduser().read_bytes()
    except OSError:
        return properties  # there is none, or the process that needs it says so
    if CERTIFICATE_MARK not in content:
        return properties  # PKCS12
    kept = {n: t for n, t in properties.items() if n not in _TRUST_FILE}
    return {**kept, TRUST_CERTIFICATES: content.decode()}


NO_SECURITY = TaskSecurity()


def is_security_option(name: str) -> bool:
    """True for an option of Spark that belongs here."""
    lower = name.lower()
    return lower in (TOKENS, CLIENT_FILE) or is_security_key(lower.removeprefix(PREFIX))


def task_security(options: Mapping[str, str]) -> TaskSecurity:
    """The security of a reader's or writer's options (`kafka.*`). Raises UsageError for an option
    that is unknown or holds a secret, or a reference that tasks cannot follow: that of a login may
    then be any, if they use tokens."""
    given = {name.lower(): str(text) for name, text in options.items() if is_security_option(name)}
    tokens, file = _tokens(given.pop(TOKENS, Tokens.IF_GIVEN.value)), given.pop(CLIENT_FILE, "")
    found = security_properties({name.removeprefix(PREFIX): t for name, t in given.items()})
    _check_secrets(found, is_reference if tokens is Tokens.ALWAYS else is_readable_in_tasks)
    protocol = security_protocol(found.get(PROTOCOL, "PLAINTEXT"))
    if tokens is Tokens.ALWAYS and not file and not protocol.uses_sasl:
        raise UsageError(
            f"{TOKENS} is true, but kafka.{PROTOCOL} is {protocol.name}: tasks log in with a token "
            "by SCRAM, so set SASL_SSL"
        )
    if not found and not file:
        return NO_SECURITY
    return TaskSecurity(tuple(sorted(found.items())), tokens, _absolute(file))


def client_file_options(path: str | None) -> dict[str, str]:
    """The options by which Spark's readers and writers log in as a file says; None: none. If the
    file has no secret but references, executors need not have the file."""
    if path is None:
        return {}
    found = security_properties(read_java_properties(path, CLIENT_FILE))
    try:
        _check_secrets(found, is_readable_in_tasks)
    except UsageError:
        return {CLIENT_FILE: _absolute(path)}
    return {f"{PREFIX}{name}": text for name, text in found.items()}


def _check_secrets(found: Mapping[str, str], may_be: Callable[[str], bool]) -> None:
    """Raise UsageError for a secret, and for a reference of a login that `may_be` refuses."""
    for name, text in found.items():
        if name == JAAS and not may_be(text):
            _check_jaas(text, may_be)
        elif name in SECRETS:
            of_login = name.startswith("sasl.")
            _check(f"kafka.{name}", text, may_be if of_login else is_readable_in_tasks)


def _absolute(path: str) -> str:
    """Spark's processes have working folders of their own."""
    return str(Path(path).expanduser().absolute()) if path else ""


def _tokens(text: str) -> Tokens:
    try:
        return Tokens(text.strip().lower())
    except ValueError:
        words = ", ".join(choice.value for choice in Tokens)
        raise UsageError(f"option {TOKENS!r} must be one of {words}, not {text!r}") from None


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
