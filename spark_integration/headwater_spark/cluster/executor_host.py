"""The address that a broker on an executor advertises, and its rack. Pure.

Clients and the other brokers must reach the address, so the machine's own host name, which often no
name server knows, is not used. Spark needs such an address too: the executor's `--hostname`, by
which the driver and the other executors reach it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

HOST_VARIABLE = "HEADWATER_ADVERTISED_HOST"
"""Set on a machine, it is what a broker there advertises."""
RACK_VARIABLE = "HEADWATER_RACK"
"""Set on a machine, it is the rack of a broker there."""
HOSTNAME_ARGUMENT = "--hostname"


@dataclass(frozen=True, slots=True)
class ExecutorHost:
    """What a broker advertises about its machine."""

    address: str
    """A host name or an IP address."""
    rack: str


def executor_host(
    environment: Mapping[str, str], executor_command: Sequence[str], link_address: str
) -> ExecutorHost:
    """The machine of an executor, from the process's environment, the executor JVM's command line
    (empty if unknown), and the local address of the task's connection to the driver.

    That last address is the fallback for a `--hostname` that is missing or loopback: a machine
    that reaches the driver through an address has that address in the cluster's network.
    """
    named = argument(executor_command, HOSTNAME_ARGUMENT)
    if is_loopback(named) and not is_loopback(link_address):
        named = ""
    address = environment.get(HOST_VARIABLE, "") or named or link_address
    return ExecutorHost(address, environment.get(RACK_VARIABLE, "") or address)


def is_loopback(host: str) -> bool:
    """Whether other machines can't reach this one by `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("localhost.")


def argument(command: Sequence[str], name: str) -> str:
    """The word after `name` in a command line; empty without it."""
    after = [value for key, value in pairwise(command) if key == name]
    return after[0] if after else ""
