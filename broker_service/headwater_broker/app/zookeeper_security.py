"""The broker's credentials and TLS towards ZooKeeper, out of its settings (Kafka's `ZkConfigs`)."""

from __future__ import annotations

from headwater.config.keys import Values
from headwater.errors import UsageError
from headwater.local.zk_client import ZooKeeperSecurity
from headwater.local.zk_tls import zookeeper_tls
from headwater.ports.metadata_store import MetadataStore, NoNodeError
from headwater_broker.metadata import znodes

ZOOKEEPER_DIGEST = "headwater.zookeeper.digest"
SET_ACL = "zookeeper.set.acl"


def zookeeper_security(values: Values) -> ZooKeeperSecurity:
    """Raises UsageError with key and remedy."""
    digest = values.string(ZOOKEEPER_DIGEST)
    user, colon, password = digest.partition(":")
    if digest and not (user and colon and password):
        raise UsageError(f"config {ZOOKEEPER_DIGEST}: its value is not user:password")
    set_acl = values.boolean(SET_ACL)
    if set_acl and not digest:
        raise UsageError(
            f"config {SET_ACL}: nodes need an owner: set {ZOOKEEPER_DIGEST}=user:password, the "
            "same on all brokers"
        )
    return ZooKeeperSecurity(digest=digest, tls=zookeeper_tls(values), set_acl=set_acl)


async def check_brokers_have_credentials(store: MetadataStore, own_id: int) -> None:
    """Raises UsageError while a live broker shows no credentials: it could change nothing that this
    broker creates with `zookeeper.set.acl`."""
    try:
        ids = await store.children(znodes.BROKERS)
    except NoNodeError:
        return
    others = [int(name) for name in ids if name.isdecimal() and int(name) != own_id]
    nodes = await store.get_many([znodes.broker_path(i) for i in others])
    for broker_id, node in zip(others, nodes, strict=True):
        if node is None:
            continue
        found = znodes.BrokerRegistration.decode(broker_id, node.data)
        if not found.has_store_credentials:
            raise UsageError(
                f"config {SET_ACL}: broker {broker_id} shows no credentials to ZooKeeper: restart "
                f"each broker with {ZOOKEEPER_DIGEST} and {SET_ACL}=false first, then each with "
                f"{SET_ACL}=true"
            )
