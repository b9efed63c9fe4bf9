"""Removes the registration of a broker whose process is dead, before its session times out.

A dead broker's supervisor normally closes its ZooKeeper session. When the supervisor died too (with
a Spark executor, say), other brokers notice: their fetch connection ended, and the port refuses
connections. They close the session with the password in `/headwater/sessions`. They never delete
the znode by its path: the znode of a restarted broker must survive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headwater.local.zk_session import DeadSession
from headwater.ports.control import plain_address
from headwater.ports.metadata_store import MetadataStore, Node, StoreError
from headwater_broker.metadata import session_znodes, znodes
from headwater_broker.metadata.cache import MetadataCache

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 1.0


class DeadBrokers:
    """Closes the metadata sessions of dead brokers. Follower fetchers report them."""

    def __init__(
        self,
        store: MetadataStore,
        view: MetadataCache,
        close_session: Callable[[DeadSession], bool],
    ) -> None:
        """`close_session` may block: it runs off the loop."""
        self._store = store
        self._view = view
        self._close_session = close_session
        self._closing: dict[int, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """True while a dead broker's session is being closed."""
        return bool(self._closing)

    def refuses_connections(self, broker_id: int) -> None:
        """The connection to a broker ended, and its port refuses another one."""
        logger.warning("broker %d refuses connections: its process is gone", broker_id)
        known = self._view.brokers.get(broker_id)
        self._view.hide_broker(broker_id)
        if known is None or broker_id in self._closing:
            return
        work = self._close_session_of(broker_id, known.broker_epoch, known.control_address)
        task = asyncio.get_running_loop().create_task(work, name=f"dead-broker-{broker_id}")
        self._closing[broker_id] = task
        task.add_done_callback(lambda _: self._closing.pop(broker_id, None))

    async def close(self) -> None:
        """Cancel what is in progress."""
        for task in list(self._closing.values()):
            task.cancel()
        await asyncio.gather(*self._closing.values(), return_exceptions=True)

    async def _close_session_of(
        self, broker_id: int, broker_epoch: int, control_address: str
    ) -> None:
        try:
            node = await self._store.get(znodes.broker_path(broker_id))
            registration = znodes.BrokerRegistration.decode(broker_id, node.data)
        except (StoreError, znodes.ZnodeError) as error:
            logger.debug("broker %d: no registration to remove: %s", broker_id, error)
            return
        if node.czxid != broker_epoch:
            return  # it was restarted, and has registered again
        session = await self._session_of(broker_id, node, registration)
        if session is None:
            return
        if not await _refuses(control_address):
            logger.warning(
                "broker %d still accepts control connections: it keeps its registration", broker_id
            )
            return
        closed = await asyncio.get_running_loop().run_in_executor(
            None, self._close_session, session
        )
        if closed:
            logger.warning("broker %d is dead: its metadata session is closed", broker_id)

    async def _session_of(
        self, broker_id: int, node: Node, registration: znodes.BrokerRegistration
    ) -> DeadSession | None:
        """The session that owns the registration; None without its password."""
        path = session_znodes.session_path(broker_id)
        try:
            secret = await self._store.get(path)
            if secret.ephemeral_owner == node.ephemeral_owner:
                return DeadSession(
                    node.ephemeral_owner, session_znodes.decode_session(path, secret.data)
                )
        except (StoreError, znodes.ZnodeError) as error:
            logger.info("broker %d: its session's password is not known: %s", broker_id, error)
        if registration.session_password:  # of a release before /headwater/sessions
            password = bytes.fromhex(registration.session_password)
            return DeadSession(node.ephemeral_owner, password)
        return None


async def _refuses(address: str) -> bool:
    """True when no process listens there. A broker that drains closes its data ports first."""
    host, _, port = plain_address(address).rpartition(":")
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError) as error:
        logger.warning("cannot tell whether the broker at %s is dead: %r", address, error)
        return False
    writer.close()
    return False
