"""Controller election: one multi creates `/controller` and increments `/controller_epoch`."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.clock import Clock
from headwater.ports.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    StoreError,
)
from headwater_broker.metadata import znodes
from headwater_broker.metadata.registration import check_cluster_id

NO_VERSION = -1
NO_SESSION = 0
EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class WonElection:
    """An epoch as controller. `fence` checks that epoch in every write of the controller."""

    controller_epoch: int
    fence: Check


async def elect(
    store: MetadataStore, broker_id: int, control_address: str, clock: Clock, cluster_id: str
) -> WonElection | None:
    """Try to become the controller; None when another broker is.

    The controller epoch rises with every election, and brokers refuse requests of a lower one.
    Raises StoreError, and ZnodeError for bad nodes or the store of another cluster.
    """
    held = await _claim_owner(store)
    if held is not None:
        if held == NO_SESSION:
            text = f"{znodes.CONTROLLER} was created by hand and is not ephemeral: no broker can"
            raise znodes.ZnodeError(f"{text} become the controller until it is removed")
        if held != store.session().session_id:
            return None
        # Left by an earlier epoch of this session, which ended with an error.
        await resign(store)
    await _check_cluster(store, cluster_id)
    epoch, version = await _read_epoch(store)
    claim = znodes.ControllerClaim(broker_id, clock.now_ms(), control_address)
    data = str(epoch + 1).encode()
    raise_epoch: Operation = (
        Create(znodes.CONTROLLER_EPOCH, data)
        if version == NO_VERSION
        else Set(znodes.CONTROLLER_EPOCH, data, version)
    )
    won = WonElection(epoch + 1, Check(znodes.CONTROLLER_EPOCH, version + 1))
    node = Create(znodes.CONTROLLER, claim.encode(), ephemeral=True)
    try:
        await store.multi([node, raise_epoch])
    except (NodeExistsError, BadVersionError, NoNodeError):
        return None
    except ConnectionLostError:
        return won if await _is_our_claim(store, won) else None
    return won


async def _is_our_claim(store: MetadataStore, won: WonElection) -> bool:
    """Whether an election whose reply was lost succeeded: this session owns the node, and the epoch
    is the one that it wrote."""
    if await _claim_owner(store) != store.session().session_id:
        return False
    node = await store.get(won.fence.path)
    return node.version == won.fence.version


async def is_controller(store: MetadataStore) -> bool:
    """Whether this session owns `/controller`."""
    return await _claim_owner(store) == store.session().session_id


async def resign(store: MetadataStore) -> None:
    """Delete `/controller` if this session owns it, so that another broker is elected at once."""
    try:
        node = await store.get(znodes.CONTROLLER)
        if node.ephemeral_owner == store.session().session_id:
            await store.multi([Delete(znodes.CONTROLLER, node.version)])
    except StoreError:
        # The node goes when the session ends.
        return


async def _claim_owner(store: MetadataStore) -> int | None:
    try:
        return (await store.get(znodes.CONTROLLER)).ephemeral_owner
    except NoNodeError:
        return None


async def _check_cluster(store: MetadataStore, cluster_id: str) -> None:
    """Raises ZnodeError when the store belongs to another cluster. A store without a cluster id has
    no brokers either: none registers there."""
    try:
        node = await store.get(znodes.CLUSTER_ID)
    except NoNodeError:
        return
    check_cluster_id(node.data, cluster_id)


async def _read_epoch(store: MetadataStore) -> tuple[int, int]:
    try:
        node = await store.get(znodes.CONTROLLER_EPOCH)
    except NoNodeError:
        return 0, NO_VERSION
    text = node.data.decode(errors="replace").strip()
    if not (text.isascii() and text.isdigit()) or int(text) >= EPOCH_MAX:
        raise znodes.ZnodeError(
            f"{znodes.CONTROLLER_EPOCH}: {text[:40]!r} is not an epoch: no broker can be the "
            "controller until the last epoch, or a higher one, is written there"
        )
    return int(text), node.version
