"""The port of rights on subjects. The gateway has none of its own: the brokers' ACLs on the topic
of a subject decide."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Protocol


class Right(Enum):
    """What is to be done with a subject, or with the registry itself."""

    READ = "read"
    """Describe or Read on the subject's topic."""
    WRITE = "write"
    """Write or Alter on it; for a topic that is not there yet, Create."""
    CONFIGURE = "configure"
    """Alter, or AlterConfigs, on it; with no subject, on the cluster."""


class Rights(Protocol):
    """Who may do what."""

    def log_in(self, authorization: str) -> Any:
        """The user of an Authorization header. Raises RegistryError (401)."""
        ...

    def to_ask(self, authorization: str) -> bytes | None:
        """What names a login that the brokers have to be asked about; None: `log_in` answers
        without them. Raises RegistryError (401)."""
        ...

    def check(self, user: Any, right: Right, subject: str) -> None:
        """Raises RegistryError (403) if the user lacks the right. GLOBAL: on the cluster."""
        ...

    def readable(self, user: Any, subjects: Iterable[str]) -> set[str]:
        """Those of the subjects that the user may read."""
        ...


class OpenRights:
    """Everyone may do everything: a cluster without logins, on loopback."""

    def log_in(self, authorization: str) -> Any:
        """Nobody in particular."""
        return None

    def to_ask(self, authorization: str) -> bytes | None:
        """Nobody is asked."""
        return None

    def check(self, user: Any, right: Right, subject: str) -> None:
        """Allowed."""

    def readable(self, user: Any, subjects: Iterable[str]) -> set[str]:
        """All."""
        return set(subjects)
