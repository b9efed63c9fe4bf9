"""The clients of a principal from the SDK: `headwater.aio` with the user's own security options."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from headwater.client.security_options import SecurityOptions, security_keywords
from headwater_gateway.app.login import Login
from headwater_gateway.app.settings import GatewaySettings

CLIENT_ID = "headwater-gateway"
CONNECT_TIMEOUT_MS = 10_000
CALL_TIMEOUT_MS = 30_000
DELIVERY_TIMEOUT_MS = 60_000
BUFFER_BYTES = 32 * 1024 * 1024
"""Of records that wait to be sent, per principal."""


class SdkClients:
    """The clients of one principal (`headwater_gateway.app.client_pools.Clients`)."""

    def __init__(self, servers: str, options: SecurityOptions, admin: AsyncAdmin) -> None:
        self.servers = servers
        self.options: Mapping[str, Any] = options
        self._security = options
        self.admin = admin
        self._producer: AsyncProducer | None = None
        self._lock = asyncio.Lock()

    async def producer(self) -> AsyncProducer:
        """The producer; opened when it is first asked for."""
        async with self._lock:
            if self._producer is None:
                producer = AsyncProducer(
                    self.servers,
                    client_id=CLIENT_ID,
                    linger_ms=1,
                    buffer_memory=BUFFER_BYTES,
                    max_block_ms=CALL_TIMEOUT_MS,
                    delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
                    bootstrap_timeout_ms=CONNECT_TIMEOUT_MS,
                    allow_auto_create_topics=False,
                    **self._security,
                )
                self._producer = await producer.start()
            return self._producer

    def consumer(self, *topics: str, **options: Any) -> AsyncConsumer:
        """A new consumer, not yet started."""
        defaults = {
            "client_id": CLIENT_ID,
            "bootstrap_timeout_ms": CONNECT_TIMEOUT_MS,
            "default_api_timeout_ms": CALL_TIMEOUT_MS,
            "allow_auto_create_topics": False,
        }
        keywords = {**defaults, **options, **self.options}
        return AsyncConsumer(*topics, bootstrap_servers=self.servers, **keywords)

    async def close(self) -> None:
        """End the connections."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.aclose()
        await self.admin.aclose()


class SdkConnector:
    """Logs in at the brokers (`headwater_gateway.app.client_pools.Connector`)."""

    def __init__(
        self, settings: GatewaySettings, connect_timeout_ms: float = CONNECT_TIMEOUT_MS
    ) -> None:
        self._settings = settings
        self._connect_timeout_ms = connect_timeout_ms

    async def connect(self, login: Login) -> SdkClients:
        """Clients that have logged in."""
        options = self._options(login)
        admin = await self._admin(options)
        return SdkClients(self._settings.bootstrap_servers, options, admin)

    async def check(self, login: Login) -> None:
        """Log in, and no more."""
        admin = await self._admin(self._options(login))
        await admin.aclose()

    def _options(self, login: Login) -> SecurityOptions:
        own = login.properties(self._settings.password_mechanism)
        return security_keywords({**self._settings.properties, **own})

    async def _admin(self, options: SecurityOptions) -> AsyncAdmin:
        admin = AsyncAdmin(
            self._settings.bootstrap_servers,
            client_id=CLIENT_ID,
            bootstrap_timeout_ms=self._connect_timeout_ms,
            default_api_timeout_ms=CALL_TIMEOUT_MS,
            **options,
        )
        return await admin.start()
