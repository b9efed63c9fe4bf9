"""This broker's place in the cluster: the cluster id, its registration, its session.

A registration is an ephemeral node, so it lives as long as the session. Its creation id (czxid) is
the broker epoch that every request of and to this broker carries (KIP-380). When the session is
lost the broker registers again, with a new epoch; an older registration of its own is waited for,
never deleted by path: a restarted broker's new node has version 0 again and would be hit.
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
from headwater_broker.metadata import znodes
from headwater_broker.metadata.log_dir_events import encode_log_dir_event

RETRY_DELAY_S = 0.1
REFUSED_DELAY_S = 1.0
NOT_REGISTERED = -1

logger = logging.getLogger(__name__)


async def ensure_cluster_id(store: MetadataStore, entropy: Entropy, expected: str | None) -> str:
    """Create or read the cluster id; `expected` is what the data folders say, or None.

    Raises UsageError when the folders belong to another cluster.
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
    """Refuse a store that has lost the cluster whose data this broker holds.

    A broker gets its first log only after the controller has stored the broker's registration below
    `/headwater/lives`. So a broker with logs and without that node meets a store that was emptied,
    or another one. Over such a store it would take all its logs for strays, and clients would
    create the topics anew, without their records. Raises UsageError.
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
    """Raises ZnodeError when `/cluster/id` holds another cluster's: a new session may be with a
    store that took the place of ours."""
    found = znodes.decode_cluster_id(data)
    if found != own:
        text = f"the metadata store is of cluster {found} by now, this broker of {own}"
        raise znodes.ZnodeError(f"{znodes.CLUSTER_ID}: {text}")


class RegistrationManager:
    """Keeps this broker registered. `broker_epoch` is NOT_REGISTERED (-1) while it is not."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        describe: Callable[[], znodes.BrokerRegistration],
        *,
        session_timeout_ms: int,
        on_registered: Callable[[int], None] | None = None,
    ) -> None:
        self.broker_epoch = NOT_REGISTERED
        self.unreported_log_dir_failures = 0
        """Data folders that went offline, of which the controller has not heard."""
        self._store = store
        self._clock = clock
        self._describe = describe
        self._wait_s = session_timeout_ms / 1000 * 2 + 2
        self._on_registered = on_registered
        self._task: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._met_other = False
        """The last look at our node found another session's."""
        self._closed = False

    async def start(self) -> int:
        """Register; the broker epoch. Raises UsageError when another broker holds this id."""
        self._store.on_session(self._session_changed)
        await self._register()
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="registration")
        return self.broker_epoch

    async def report_log_dir_failures(self) -> None:
        """Have the controller ask which replicas this broker still has (KIP-112). While the store
        is away the failures stay untold: call again."""
        told = self.unreported_log_dir_failures
        data = encode_log_dir_event(self._describe().broker_id)
        path = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
        try:
            await self._store.multi([Create(path, data, sequential=True)])
        except StoreError as error:
            logger.warning("the controller does not know of the failed folder yet: %s", error)
        else:
            self.unreported_log_dir_failures -= told

    async def stop(self) -> None:
        """Stop renewing. Closing the store's session removes the registration."""
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
                logger.exception("registration lost to another broker; trying again")
                self._lost.set()
                await asyncio.sleep(self._wait_s)
            except (StoreError, znodes.ZnodeError) as e:  # what belongs in the store is not there
                logger.error("registering again failed, trying again until it is mended: %r", e)
                self._lost.set()
                await asyncio.sleep(REFUSED_DELAY_S)

    async def _register(self) -> None:
        """Create the node, or wait until an older session's node has gone."""
        broker_id = await self._own_id()
        path = znodes.broker_path(broker_id)
        deadline = self._clock.monotonic() + self._wait_s
        changed = asyncio.Event()
        unwatch = self._store.watch(path, lambda _path: changed.set())
        try:
            while not await self._try_register(path):
                left = deadline - self._clock.monotonic()
                if left <= 0 and self._met_other:
                    raise UsageError(await self._conflict(path, broker_id))
                if left <= 0:  # nobody holds it: the store cannot be reached
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
        """A description names the session, so right after an expiry there is none for a moment."""
        while True:
            try:
                return self._describe().broker_id
            except SessionExpiredError:
                await asyncio.sleep(RETRY_DELAY_S)

    async def _try_register(self, path: str) -> bool:
        try:
            registration = self._describe()  # anew at each try: of the session that creates it
            cluster = await self._store.get(znodes.CLUSTER_ID)
            check_cluster_id(cluster.data, registration.cluster_id)
            check = Check(znodes.CLUSTER_ID, cluster.version)
            await self._store.multi([check, Create(path, registration.encode(), ephemeral=True)])
        except (NodeExistsError, ConnectionLostError):
            logger.info("%s exists or the outcome is unknown: reading it", path)
        except SessionExpiredError:
            await asyncio.sleep(RETRY_DELAY_S)
            return False
        return await self._adopt(path)

    async def _adopt(self, path: str) -> bool:
        """True when the node there is of this session: the epoch is its czxid."""
        try:
            node = await self._store.get(path)
            session_id = self._store.session().session_id
        except StoreError:
            self._met_other = False
            await asyncio.sleep(RETRY_DELAY_S)
            return False
        self._met_other = node.ephemeral_owner != session_id
        if self._met_other:
            return False
        self.broker_epoch = node.czxid
        logger.info("registered as %s, broker epoch %d", path, node.czxid)
        if self._on_registered is not None:
            self._on_registered(node.czxid)
        return True

    async def _conflict(self, path: str, broker_id: int) -> str:
        try:
            node = await self._store.get(path)
            other = znodes.BrokerRegistration.decode(broker_id, node.data).control_address
        except (StoreError, znodes.ZnodeError) as e:
            other = f"unknown ({e!r})"
        return (
            f"broker id {broker_id} is already registered by a live broker (control address "
            f"{other}): give this one another broker.id, or stop that one"
        )
