"""The properties of a broker that Spark runs: its listeners, addresses and, if secure, its keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.local.cluster_spec import LOOPBACK, ClusterSpec, Slot
from headwater.local.secure_cluster import SecureCluster, Stores, listener_properties
from headwater.local.supervisor import broker_properties
from headwater_spark.cluster.broker_files import HOST_MARK, KEY_STORE, RACK_MARK, TRUST_STORE

EVERY_ADDRESS = "0.0.0.0"
"""Where brokers on other machines listen: the driver does not know their addresses."""


class BrokerSettings:
    """The settings of one cluster's brokers. They may be secrets: they go by the driver's link,
    and neither into Spark's plans nor into its event log."""

    def __init__(
        self,
        servers: str,
        properties: Mapping[str, str],
        security: SecureCluster | None,
        *,
        one_host: bool,
    ) -> None:
        """`servers`: ZooKeeper's. `properties` are the caller's, and win."""
        self._servers = servers
        self._properties = properties
        self._security = security
        self._one_host = one_host

    def rows(self, spec: ClusterSpec, slot: Slot) -> dict[str, str]:
        """The properties of one broker, with marks for what its task finds out."""
        rows = broker_properties(spec, slot)
        rows["zookeeper.connect"] = self._servers
        if self._security is not None:
            folder = security_folder(spec, slot)
            stores = Stores(folder / KEY_STORE, folder / TRUST_STORE)
            rows = {**self._security.broker_properties(slot, stores), **rows}
        if not self._one_host:
            rows |= self._addresses(slot)
        return {**rows, **self._properties}

    def host_of(self, slot: Slot, executor_host: str) -> str:
        """The host by which others reach a broker: on one machine it listens on loopback, whatever
        Spark calls its executors."""
        return slot.host if self._one_host else executor_host

    def _addresses(self, slot: Slot) -> dict[str, str]:
        """The listeners of a broker on another machine, whose address its task finds out."""
        rows = {
            "listeners": f"PLAINTEXT://{EVERY_ADDRESS}:{slot.port}",
            "advertised.listeners": f"PLAINTEXT://{HOST_MARK}:{slot.port}",
            "control.listener": f"{EVERY_ADDRESS}:{slot.control_port}",
            "control.advertised.listener": f"{HOST_MARK}:{slot.control_port}",
            "status.listener": f"{EVERY_ADDRESS}:{slot.status_port}",
            "broker.rack": RACK_MARK,
        }
        if self._security is not None:
            rows |= listener_properties(slot, listen=EVERY_ADDRESS, advertised=HOST_MARK)
            rows["status.listener"] = f"{LOOPBACK}:{slot.status_port}"  # it has no login
        return rows


def security_folder(spec: ClusterSpec, slot: Slot) -> Path:
    """Where a broker's task writes its key and certificates, on the broker's host."""
    return spec.directory / "security" / slot.name
