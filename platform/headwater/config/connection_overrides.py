"""Parses `max.connections.per.ip.overrides`: limits of connections by address."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from headwater.config.row import SHOWN_CHARS_MAX
from headwater.errors import UsageError


def connection_overrides(rows: Iterable[str]) -> dict[str, int]:
    """The limit of each address, from rows `address:count`.

    Raises UsageError, also for host names, which Kafka resolves once: connections have addresses.
    """
    found = {}
    for row in rows:
        host, _, count = row.rpartition(":")
        try:
            address = str(ip_address(host.strip("[]")))
        except ValueError:
            address = ""
        if not address or not count.isdecimal():
            raise UsageError(
                f"config max.connections.per.ip.overrides: {row[:SHOWN_CHARS_MAX]!r} is not valid; "
                "use address:count, with an IP address, not a name"
            )
        found[address] = int(count)
    return found
