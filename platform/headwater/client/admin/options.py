"""The options of `Admin`, checked. Kafka's names with underscores, times in ms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.client.cluster import ClusterOptions
from headwater.client.option_rules import (
    bootstrap,
    function,
    integer,
    number,
    option,
    optional,
    text,
)
from headwater.ports.credentials import NO_CREDENTIALS, Credentials

OnWait = Callable[[str, int], object]
"""(what a call waits for, its time limit in ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOptions:
    """What `Admin` was given. `Admin.__init__` declares the defaults."""

    bootstrap_servers: list[tuple[str, int]] = option(bootstrap)
    client_id: str = option(text)
    request_timeout_ms: int = option(integer(1))
    default_api_timeout_ms: float = option(number(1))
    retry_backoff_ms: float = option(number(0))
    retry_backoff_max_ms: float = option(number(0))
    socket_connection_setup_timeout_ms: float = option(number(1))
    bootstrap_timeout_ms: float = option(number(0))
    on_wait: OnWait | None = option(optional(function))
    credentials: Credentials = NO_CREDENTIALS
    """Of the security options."""

    def for_cluster(self) -> ClusterOptions:
        """The options of the connections."""
        return ClusterOptions(
            client_id=self.client_id,
            credentials=self.credentials,
            request_timeout_ms=self.request_timeout_ms,
            connect_timeout_ms=self.socket_connection_setup_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            default_api_timeout_ms=self.default_api_timeout_ms,
            on_wait=self.on_wait,
        )
