"""The shared part of the options of `format("headwater")`: names, forms, time limits. Pure.

The options have the names of Spark's Kafka source and sink; `source.source_options` and
`sink.sink_options` hold each side's own.

An unknown option is an error that names it: a typo must not change which records are read. Names
are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.client.addresses import parse_bootstrap
from headwater.errors import UsageError
from headwater.security.secret import is_readable_in_tasks
from headwater.security.store_options import StoreOptions, check_no_secret
from headwater_spark.task_security import is_security_option

EARLIEST = -2
"""Kafka's number for the log start, in `startingOffsets` JSON and in ListOffsets."""
LATEST = -1

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of requests. Picklable; travels to tasks."""

    retry_s: float = 60.0
    """Lost connections and retriable errors are retried until none succeeds for this long."""
    request_s: float = 30.0
    """Of one request on one connection."""


RETRY_TIMEOUT = ("headwater.retry.timeout.ms", "kafka.default.api.timeout.ms")
REQUEST_TIMEOUT = "kafka.request.timeout.ms"
CLIENT_ID = "kafka.client.id"
SERVERS = ("kafka.bootstrap.servers", "bootstrap.servers", "bootstrap_servers")
_STORAGE_PREFIX = "headwater.storage."
# Spark adds these to a user's options.
_OF_SPARK = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})


@dataclass(frozen=True, slots=True)
class OptionSide:
    """The names that a source or a sink knows."""

    name: str
    read: tuple[str, ...]
    without_effect: tuple[str, ...]
    refused: Mapping[str, str]
    """Name -> reason and remedy."""


class OptionReader:
    """Reads options by name and checks their form; refuses names that the side does not know."""

    def __init__(self, given: Mapping[str, str], side: OptionSide) -> None:
        self.given = {name.lower(): str(value) for name, value in given.items()}
        for name in given:
            self._check_name(name, side)
        self.storage_options()  # also a side that has no table would keep a secret in its plan

    @staticmethod
    def _check_name(name: str, side: OptionSide) -> None:
        lower = name.lower()
        if lower in _OF_SPARK or lower.startswith(_STORAGE_PREFIX) or is_security_option(name):
            return
        reason = next((why for known, why in side.refused.items() if known.lower() == lower), None)
        if reason is not None:
            raise UsageError(f"option {name!r} is not for a headwater {side.name}: {reason}")
        known = (*side.read, *side.without_effect)
        if lower in {k.lower() for k in known}:
            return
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(side.read)}"
        raise UsageError(f"unknown option {name!r} for a headwater {side.name}{hint}")

    def text(self, *names: str) -> str | None:
        """The value of the first of these names that is set."""
        for name in names:
            value = self.given.get(name.lower())
            if value is not None:
                return value.strip()
        return None

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise UsageError(f"option {name!r} must be true or false, not {value!r}")
        return value.lower() == "true"

    def positive(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) < 1:
            raise UsageError(f"option {name!r} must be a whole number of at least 1, not {value!r}")
        return int(value)

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise UsageError(f"option {name!r} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def servers(self) -> str:
        value = self.text(*SERVERS)
        if not value:
            raise UsageError(
                'option "kafka.bootstrap.servers" is missing: give host:port[,host:port...]'
            )
        try:
            parse_bootstrap(value)
        except UsageError as error:
            raise UsageError(f"option {SERVERS[0]!r}: {error}") from error
        return value

    def storage_options(self) -> StoreOptions:
        """The options of the table's store, secrets as references. Raises UsageError for others."""
        at = len(_STORAGE_PREFIX)
        return store_options(
            {n[at:]: v for n, v in self.given.items() if n.startswith(_STORAGE_PREFIX)}
        )


def store_options(given: Mapping[str, str]) -> StoreOptions:
    """The options of an object store. Raises UsageError for a secret that is no reference which
    Spark's tasks can follow, as for `kafka.*` (`task_security`)."""
    why = (
        "plans and event logs would keep it; give env:NAME or file:PATH, set on the driver and on "
        "each executor (on Databricks a variable of the cluster may be {{secrets/SCOPE/KEY}})"
    )
    found = tuple(sorted(given.items()))
    check_no_secret(found, _STORAGE_PREFIX, is_readable_in_tasks, why)
    return found


def servers_of(bootstrap_servers: str | None, options: Mapping[str, str]) -> str:
    """The bootstrap servers of a call, which may be among its options. Raises UsageError."""
    given = {name.lower(): str(text) for name, text in options.items()}
    found = bootstrap_servers or next((given[n] for n in SERVERS if given.get(n)), "")
    if not found:
        raise UsageError(
            f"which cluster? Give bootstrap_servers=, or the option {SERVERS[0]!r} among options="
        )
    return found


def timeouts_of(options: OptionReader) -> Timeouts:
    """The time limits of either side."""
    default = Timeouts()
    given = [options.positive(name) for name in RETRY_TIMEOUT]
    retry_ms = next((ms for ms in given if ms is not None), None)
    request_ms = options.positive(REQUEST_TIMEOUT)
    return Timeouts(
        default.retry_s if retry_ms is None else retry_ms / 1000,
        default.request_s if request_ms is None else request_ms / 1000,
    )
