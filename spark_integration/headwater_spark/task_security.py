"""`kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`: how drivers and tasks log in. Pure.

Spark keeps options in plans and ships them to tasks, so a secret in them is refused: they hold
references (`env:NAME`, `file:PATH`), which every process follows for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.errors import UsageError
from headwater.ports.credentials import Credentials
from headwater.security.client_keys import SECRETS, is_security_key, security_properties
from headwater.security.client_security import JAAS, credentials_of
from headwater.security.jaas import parse_jaas
from headwater.security.secret import is_readable_in_tasks

PREFIX = "kafka."
_SECRETS_OF_JAAS = ("password", "clientsecret")


@dataclass(frozen=True, slots=True)
class TaskSecurity:
    """The security properties of a query or job, without any secret. Picklable; goes to tasks."""

    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def credentials(self) -> Credentials:
        """The credentials in this process. Raises UsageError, as for a variable that is not set."""
        return credentials_of(dict(self.properties))


NO_SECURITY = TaskSecurity()


def is_security_option(name: str) -> bool:
    """True for an option of Spark that belongs here."""
    return is_security_key(name.lower().removeprefix(PREFIX))


def task_security(options: Mapping[str, str]) -> TaskSecurity:
    """The security of a reader's or writer's options (`kafka.*`)."""
    return shipped(
        {
            name.lower().removeprefix(PREFIX): str(text)
            for name, text in options.items()
            if is_security_option(name)
        }
    )


def shipped(properties: Mapping[str, str]) -> TaskSecurity:
    """The security of a client's properties, to be given to tasks. Raises UsageError for an option
    that is unknown or holds a secret, or a reference that tasks cannot follow."""
    found = security_properties(properties)
    for name, text in found.items():
        if name == JAAS and not is_readable_in_tasks(text):
            _check_jaas(text)
        elif name in SECRETS:
            _check(f"kafka.{name}", text)
    return TaskSecurity(tuple(sorted(found.items())))


def _check_jaas(text: str) -> None:
    for name, value in parse_jaas(text).options.items():
        if name.lower() in _SECRETS_OF_JAAS:
            _check(f"{name} in kafka.{JAAS}", value)


def _check(name: str, text: str) -> None:
    if not is_readable_in_tasks(text):
        raise UsageError(
            f"{name} is no reference that Spark's tasks can follow: plans and event logs would "
            "keep a secret; give env:NAME or file:PATH, set on the driver and on each executor"
        )
