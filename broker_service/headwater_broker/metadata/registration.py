"""The broker's registration in ZooKeeper, and the checks of the cluster id.

The registration is an ephemeral node, so it exists as long as the session. Its czxid is the broker
epoch, which every request from and to this broker carries (KIP-380). After the loss of the session
the broker registers again, with a new epoch. It waits until the node of its old session is gone and
never deletes it by path: a restarted broker's new node has version 0 again, and would be deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import UsageError
from headwater.ids import id_text
from headwater.ports.metadata_store import (
    Check,
    ConnectionLostError,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    StoreError,
)
from headwater_broker.log.folder_inspection import FolderContent
from headwater_broker.metadata import session_znodes, znodes
from headwater_broker.metadata.log_dir_events import encode_log_dir_event

RETRY_DELAY_S = 0.1
REFUSED_DELAY_S = 1.0
"""Pause before the next try to register again, after a refusal by the store's content."""
NOT_REGISTERED = -1

logger = logging.getLogger(__name__)


async def ensure_cluster_id(store: MetadataStore, entropy: Entropy, expected: str | None) -> str:
    """Read the cluster id, or create it; `expected` is the id in the data folders, or None.

    Raises UsageError if the folders belong to another cluster.
    """
    for path in znodes.PERSISTENT_PATHS:
        await store.ensure_path(path)
    while True:
        try:
            found = znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID)).data)
        except NoNodeError:
            fresh = expected or id_text(entropy.uuid())
            try:
                await store.multi([Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh))])
            except (NodeExistsError, ConnectionLostError):
                continue
            found = fresh
        if expected is not None and found != expected:
            raise UsageError(
                f"the data folders belong to cluster {expected}, the metadata store to {found}: "
                "point zookeeper.connect at the right ensemble or chroot, or use empty folders"
            )
        return found


async def check_store_knows_broker(
    store: MetadataStore, where: str, broker_id: int, folders: Iterable[FolderContent]
) -> None:
    """Refuse a store that has lost the metadata of the data in this broker's folders.

    A broker gets its first log only after the controller has stored its registration below
    `/headwater/lives`. So if a broker has logs and that node does not exist, the store was emptied,
    or is another one. With it the broker would treat all its logs as strays, and clients would
    create the topics again, without their records. Raises UsageError.
    """
    with_logs = [folder for folder in folders if folder.logs]
    if not with_logs:
        return
    try:
        await store.get(znodes.last_registration_path(broker_id))
    except NoNodeError:
        rows = ", ".join(f"{f.path} ({f.logs} partitions)" for f in with_logs)
        ids = sorted({f.cluster_id for f in with_logs if f.cluster_id is not None})
        raise UsageError(
            f"the metadata store at {where} does not know broker {broker_id}, but there is data of "
            f"cluster {', '.join(ids) or 'unknown'} in {rows}: the store was emptied, or is "
            "another one. Point zookeeper.connect at that cluster's ensemble and chroot, or "
            "restore ZooKeeper's data. If it is lost for good, move the folders away to start "
            "empty: `headwater dump-log` reads their records, Delta tables keep tiered history"
        ) from None


def check_cluster_id(data: bytes, own: str) -> None:
    """Raises ZnodeError if `/cluster/id` holds another id: a new session may meet another store at
    the same address."""
    found = znodes.decode_cluster_id(data)
    if found != own:
        text = f"the metadata store now belongs to cluster {found}, this broker to {own}"
        raise znodes.ZnodeError(f"{znodes.CLUSTER_ID}: {text}")


class RegistrationManager:
    """Keeps this broker registered. `broker_epoch` is -1 (NOT_REGISTERED) while it is not."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        describe: Callable[[], znodes.BrokerRegistration],
        *,
        session_timeout_ms: int,
        refused_delay_s: float = REFUSED_DELAY_S,
        on_registered: Callable[[int], None] | None = None,
    ) -> None:
        self._refused_delay_s = refused_delay_s
        self.broker_epoch = NOT_REGISTERED
        self.unreported_log_dir_failures = 0
        """Number of failed data folders that were not reported to the controller yet."""
        self._store = store
        self._clock = clock
        self._describe = describe
        self._wait_s = session_timeout_ms / 1000 * 2 + 2
        self._on_registered = on_registered
        self._task: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._is_taken = False
        """Whether the node belonged to another session when it was last read."""
        self._closed = False

    async def start(self) -> int:
        """Register, and return the broker epoch. Raises UsageError if a live broker has this id."""
        self._store.on_session(self._session_changed)
        await self._register()
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="registration")
        return self.broker_epoch

    async def report_log_dir_failures(self) -> None:
        """Have the controller find out which replicas this broker has lost (KIP-112).

        While the store is unreachable the failures stay unreported: call it again.
        """
        reported = self.unreported_log_dir_failures
        data = encode_log_dir_event(self._describe().broker_id)
        path = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
        try:
            await self._store.multi([Create(path, data, sequential=True)])
        except StoreError as error:
            logger.warning("the failed folder is not reported to the controller yet: %s", error)
        else:
            self.unreported_log_dir_failures -= reported

    async def stop(self) -> None:
        """Do not register again. Closing the session removes the registration."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.broker_epoch = NOT_REGISTERED
            self._lost.set()

    async def _keep(self) -> None:
        while True:
            await self._lost.wait()
            self._lost.clear()
            logger.warning("the metadata session expired: registering again")
            try:
                await self._register()
            except UsageError:
                logger.exception("another broker has registered with this id; trying again")
                self._lost.set()
                await asyncio.sleep(self._wait_s)
            except (StoreError, znodes.ZnodeError) as e:  # nodes are missing, or another cluster's
                logger.error("registering again failed, trying again until it is mended: %r", e)
                self._lost.set()
                await asyncio.sleep(self._refused_delay_s)

    async def _register(self) -> None:
        """Create the node; if an older session's node exists, wait until it is gone."""
        broker_id = await self._own_id()
        path = znodes.broker_path(broker_id)
        deadline = self._clock.monotonic() + self._wait_s
        changed = asyncio.Event()
        unwatch = self._store.watch(path, lambda _path: changed.set())
        try:
            while not await self._try_register(path):
                left = deadline - self._clock.monotonic()
                if left <= 0 and self._is_taken:
                    raise UsageError(await self._conflict_text(path, broker_id))
                if left <= 0:  # the node is not taken: the store is unreachable
                    left = self._wait_s
                    deadline = self._clock.monotonic() + left
                try:
                    await asyncio.wait_for(changed.wait(), min(left, 1.0))
                except TimeoutError:
                    pass
                changed.clear()
        finally:
            unwatch()

    async def _own_id(self) -> int:
        """The registration names the session, and right after an expiry there is none yet."""
        while True:
            try:
                return self._describe().broker_id
            except SessionExpiredError:
                await asyncio.sleep(RETRY_DELAY_S)

    async def _try_register(self, path: str) -> bool:
        try:
            registration = self._describe()  # at each try: it names the session that creates it
            cluster = await self._store.get(znodes.CLUSTER_ID)
            check_cluster_id(cluster.data, registration.cluster_id)
            check = Check(znodes.CLUSTER_ID, cluster.version)
            await self._store.multi([check, *self._own_nodes(path, registration)])
        except (NodeExistsError, ConnectionLostError):
            logger.info("%s exists or the outcome is unknown: reading it", path)
        except SessionExpiredError:
            await asyncio.sleep(RETRY_DELAY_S)
            return False
        return await self._accept_node(path)

    def _own_nodes(self, path: str, registration: znodes.BrokerRegistration) -> list[Create]:
        """The registration, and the session's password for the peers: both end with the session."""
        password = self._store.session().password
        session = session_znodes.session_path(registration.broker_id)
        return [
            Create(path, registration.encode(), ephemeral=True),
            Create(session, session_znodes.encode_session(password), ephemeral=True),
        ]

    async def _accept_node(self, path: str) -> bool:
        """True if the node belongs to this session. Its czxid becomes the broker epoch."""
        try:
            node = await self._store.get(path)
            session_id = self._store.session().session_id
        except StoreError:
            self._is_taken = False
            await asyncio.sleep(RETRY_DELAY_S)
            return False
        self._is_taken = node.ephemeral_owner != session_id
        if self._is_taken:
            return False
        self.broker_epoch = node.czxid
        logger.info("registered as %s, broker epoch %d", path, node.czxid)
        if self._on_registered is not None:
            self._on_registered(node.czxid)
        return True

    async def _conflict_text(self, path: str, broker_id: int) -> str:
        try:
            node = await self._store.get(path)
            other = znodes.BrokerRegistration.decode(broker_id, node.data).control_address
        except (StoreError, znodes.ZnodeError) as e:
            other = f"unknown ({e!r})"
        return (
            f"broker id {broker_id} is already registered by a live broker (control address "
            f"{other}): give this one another broker.id, or stop that one"
        )
