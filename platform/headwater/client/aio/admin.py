"""`AsyncAdmin`: the admin client for asyncio programs.

async with AsyncAdmin("127.0.0.1:9092") as admin:
    await admin.create_topics([NewTopic("flights", 6, 3)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

from headwater.client.admin.client import Admin
from headwater.client.admin.options import AdminOptions
from headwater.client.admin.verbs import AdminVerbs
from headwater.client.aio.keywords import AdminKeywords, options_of
from headwater.client.aio.managed import Managed
from headwater.client.cluster import Cluster
from headwater.client.config_names import keywords_of


class AsyncAdmin(AdminVerbs, Managed):
    """Administers one cluster: every verb of `headwater.Admin`, as a coroutine.

    Options have the names, the defaults and the meaning of `headwater.Admin`'s. Tasks of one loop
    may share it; a call that is cancelled may have been carried out.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        **options: Unpack[AdminKeywords],
    ) -> None:
        """Checks the options; `start`, or `async with`, connects. Raises OptionError, UsageError.
        `on_wait` is called on the loop."""
        given = {"bootstrap_servers": bootstrap_servers, **options}
        checked = options_of("AsyncAdmin", Admin, AdminOptions, given)
        self._bootstrap_timeout_ms = checked.bootstrap_timeout_ms
        self._cluster = Cluster(checked.bootstrap_servers, checked.for_cluster())
        super().__init__(self._cluster)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> AsyncAdmin:
        """See `Admin.from_config`."""
        return cls(**keywords_of("AsyncAdmin", AdminOptions, config))

    async def start(self) -> Self:
        """Connect. Raises NoBrokersAvailableError when no broker answers within
        `bootstrap_timeout_ms`."""
        try:
            await self._cluster.bootstrap(self._bootstrap_timeout_ms)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Close the connections. A second call does nothing."""
        await self._cluster.close()

    stop = aclose
