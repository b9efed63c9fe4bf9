"""Options of object stores: which hold a secret, and their values where a table is opened.

Options may hold references (`env:NAME`, `file:PATH`, see `secret`) until a process opens a table:
plans of Spark, arguments that `ps` shows and files of restored clusters then have no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headwater.errors import UsageError
from headwater.security.secret import resolved

StoreOptions = tuple[tuple[str, str], ...]

_SECRET_WORDS = ("secret", "token", "password", "credential", "sas")
_SECRET_END = "key"
_NO_SECRET_ENDS = ("_id", "_file", "_path", "_uri", "_url", "_endpoint", "_header")
"""Names of what holds a secret, and names of keys: `aws_access_key_id` is a user's name."""


def is_secret(name: str) -> bool:
    """True for an option such as `aws_secret_access_key`, `azure_storage_sas_token`, `account_key`;
    also for unknown names of that form."""
    lower = name.lower().replace(".", "_")
    if lower.endswith(_NO_SECRET_ENDS) or lower == "google_application_credentials":
        return False
    return lower.endswith(_SECRET_END) or any(word in lower for word in _SECRET_WORDS)


def _has_login(value: str) -> bool:
    """True for a URL with a password in it."""
    _, scheme, rest = value.partition("://")
    login, at, _ = rest.partition("/")[0].rpartition("@")
    return bool(scheme and at and ":" in login)


def check_no_secret(
    options: Iterable[tuple[str, str]], shown: str, may_be: Callable[[str], bool], why: str
) -> None:
    """Raise UsageError for an option with a secret that is not written as a reference that `may_be`
    allows. `shown`: how users name options, as "headwater.storage."; `why` not, and the remedy."""
    for name, value in options:
        if (is_secret(name) or _has_login(value)) and not may_be(value):
            raise UsageError(f"{shown}{name} holds a secret: {why}")


def opened(options: Iterable[tuple[str, str]] | Mapping[str, str]) -> dict[str, str]:
    """The options with the values that references stand for, in this process. Raises UsageError."""
    pairs = options.items() if isinstance(options, Mapping) else options
    return {name: resolved(f"storage option {name}", value) for name, value in pairs}


def without_secrets(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What may stand in a plan of Spark: options that are no secret."""
    return {name: value for name, value in options if not is_secret(name)}
