"""Settings that may change while a broker runs, and their values (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.keys import broker_key
from headwater.config.listener_values import split_override
from headwater.errors import UsageError


class StaticKeyError(UsageError):
    """A key that can only be set in the broker's file."""


def check_dynamic(name: str, text: str) -> None:
    """Check a value for a running broker. Raises UsageError; StaticKeyError for a static key."""
    override = split_override(name)
    row = broker_key(name if override is None else override[2])
    if not row.is_dynamic:
        raise StaticKeyError(
            f"config {name} can't be changed while a broker runs: set it in the broker's file and "
            "restart the broker"
        )
    row.parse(text)


def usable(configs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(stored settings that can be used, an error message for each of the others)."""
    good: dict[str, str] = {}
    problems: list[str] = []
    for name, text in configs.items():
        try:
            check_dynamic(name, text)
            good[name] = text
        except UsageError as error:
            problems.append(str(error))
    return good, problems
