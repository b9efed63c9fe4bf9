"""What this broker does when a peer's process is found dead: have its registration removed at once.

The supervisor of the dead normally closes its ZooKeeper session first. When that died too (a Spark
executor, say), the peers see it: their fetch connection ended and the port refuses. They close the
session with the credentials in its registration, never the node by its path: a restarted broker's
node must survive (design: "who removes a dead broker's registration").
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headwater.local.zk_session import DeadSession
from headwater.ports.metadata_store import MetadataStore, Node, StoreError
from headwater_broker.metadata import znodes
from headwater_broker.metadata.cache import MetadataCache

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 1.0


class DeadPeers:
    """One instance per broker; `gone` is replication's callback."""

    def __init__(
        self,
        store: MetadataStore,
        view: MetadataCache,
        close_session: Callable[[DeadSession], bool],
    ) -> None:
        """`close_session` may block; it runs off the loop."""
        self._store = store
        self._view = view
        self._close_session = close_session
        self._working: dict[int, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """True while a dead peer's session is being closed."""
        return bool(self._working)

    def gone(self, broker_id: int) -> None:
        """Its connection ended and its port refuses."""
        logger.warning("broker %d refuses connections: its process is gone", broker_id)
        known = self._view.brokers.get(broker_id)
        self._view.hide_broker(broker_id)
        if known is None or broker_id in self._working:
            return
        work = self._bury(broker_id, known.broker_epoch, known.control_address)
        task = asyncio.get_running_loop().create_task(work, name=f"dead-peer-{broker_id}")
        self._working[broker_id] = task
        task.add_done_callback(lambda _: self._working.pop(broker_id, None))

    async def close(self) -> None:
        """Give up what is under way."""
        for task in list(self._working.values()):
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _bury(self, broker_id: int, broker_epoch: int, control_address: str) -> None:
        try:
            node = await self._store.get(znodes.broker_path(broker_id))
            registration = znodes.BrokerRegistration.decode(broker_id, node.data)
        except (StoreError, znodes.ZnodeError) as error:
            logger.debug("broker %d: no registration to remove: %s", broker_id, error)
            return
        if node.czxid != broker_epoch or not registration.session_password:
            return  # another life of it has registered since
        if not await _refuses(control_address):
            logger.warning("broker %d still answers control calls: it stays", broker_id)
            return
        session = _session(node, registration)
        closed = await asyncio.get_running_loop().run_in_executor(
            None, self._close_session, session
        )
        if closed:
            logger.warning("broker %d is dead: its metadata session is closed", broker_id)


def _session(node: Node, registration: znodes.BrokerRegistration) -> DeadSession:
    return DeadSession(node.ephemeral_owner, bytes.fromhex(registration.session_password))


async def _refuses(address: str) -> bool:
    """True when nobody listens there: a broker that drains closes its data port first."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError) as error:
        logger.warning("%s: %r: not known to be dead", address, error)
        return False
    writer.close()
    return False
