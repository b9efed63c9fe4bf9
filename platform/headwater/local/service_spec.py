"""`ServiceSpec`: a process that runs beside a cluster's brokers, as tiering does."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec

from headwater.errors import UsageError
from headwater.extras import install_hint

TIERING = "tiering"
REGISTRY = "registry"
REGISTRY_PORT = 8081
"""Confluent's."""
GATEWAY = "gateway"
GATEWAY_PORT = 8082
"""Of Confluent's REST proxy."""
HEADWATER_COMMAND = (sys.executable, "-P", "-m", "headwater")


@dataclass(frozen=True, slots=True)
class ServiceChoice:
    """Which processes run beside the brokers of a cluster; kept for its later starts."""

    tiering: bool = True
    """`headwater tier serve`."""
    registry_port: int | None = None
    """`headwater registry serve`, at this port."""
    gateway_port: int | None = None
    """The same for `headwater gateway`."""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A child of the supervisor, which starts it after the brokers, restarts it when it ends, and
    stops it before them.

    It gets the options `--bootstrap-server` and, in a secure cluster, `--command-config`, by which
    it logs in as a principal of its own, `User:NAME`. It prints a JSON line with `"ready": true`
    once it works, and ends at end of file on its stdin.
    """

    name: str
    """Of its process, its log and its principal."""
    command: tuple[str, ...]
    settings_prefix: str = ""
    """Brokers' properties with this prefix are given to it in a private file..."""
    settings_option: str = ""
    """...by this option."""
    takes_zookeeper: bool = False
    """True: it gets --zookeeper and, in a secure cluster, --zookeeper-config."""
    users_option: str = ""
    """In a secure cluster this option gets the brokers' addresses at which users log in."""
    awaits_ready: bool = False
    """True: the cluster is up only when this service is ready."""


def tiering_service() -> ServiceSpec | None:
    """`headwater tier serve`; None where its libraries are not installed."""
    if find_spec("deltalake") is None or find_spec("headwater_tier") is None:
        return None
    command = (*HEADWATER_COMMAND, "tier", "serve", "--supervised")
    return ServiceSpec(
        TIERING, command, "headwater.tables.", "--tables-config", takes_zookeeper=True
    )


def registry_service(port: int) -> ServiceSpec:
    """`headwater registry serve`. Raises UsageError where its libraries are not installed."""
    _check_gateway_extra("--schema-registry")
    command = (
        *(*HEADWATER_COMMAND, "registry", "serve", "--supervised", "--port", str(port)),
        # Schemas outlive every disk in a table, as the records do that they are for.
        *("--topic-config", "remote.storage.enable=true"),
    )
    return ServiceSpec(REGISTRY, command, users_option="--user-bootstrap-server", awaits_ready=True)


def gateway_service(port: int, registry_url: str | None) -> ServiceSpec:
    """`headwater gateway`, with the registry at this URL. Raises UsageError where its libraries are
    not installed."""
    _check_gateway_extra("--gateway")
    listen = ("--listen", f"127.0.0.1:{port}")
    registry = () if registry_url is None else ("--schema-registry", registry_url)
    command = (*HEADWATER_COMMAND, "gateway", "--supervised", *listen, *registry)
    return ServiceSpec(GATEWAY, command, users_option="--user-bootstrap-server", awaits_ready=True)


def _check_gateway_extra(option: str) -> None:
    for library in ("starlette", "uvicorn", "headwater_gateway"):
        if find_spec(library) is None:
            raise UsageError(f"{option} needs {library}: {install_hint('gateway')}")
