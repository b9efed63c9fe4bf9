"""The host on which each broker of a cluster has its data, kept in the cluster's ZooKeeper.

    /headwater/homes/3    {"format": 1, "host": "10.0.0.7"}

A driver that starts the brokers again, on any machine, sends each back to its data: on another
host it would start with empty folders, and with all brokers so, no replica could lead.
"""

from __future__ import annotations

import json
import logging

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

logger = logging.getLogger(__name__)

HOMES = "/headwater/homes"
FORMAT = 1


class BrokerHomes:
    """Reads and writes the hosts. Any thread may call. Errors of ZooKeeper are only logged: a
    broker without a known host runs on any."""

    def __init__(self, client: KazooClient, root: str = "") -> None:
        """`client` is connected, and its owner closes it. `root`: the cluster's chroot."""
        self._client = client
        self._homes = root + HOMES

    def of(self, broker_id: int) -> str:
        """The broker's host; empty if it is not known."""
        try:
            data, _ = self._client.get(f"{self._homes}/{broker_id}")
            found = json.loads(data)
        except NoNodeError:
            return ""
        except (KazooException, ValueError) as error:
            logger.warning("the host of broker %d is not known: %r", broker_id, error)
            return ""
        is_ours = isinstance(found, dict) and found.get("format") == FORMAT
        return str(found["host"]) if is_ours and "host" in found else ""

    def put(self, broker_id: int, host: str) -> None:
        """The broker serves on this host: its data is there now."""
        path = f"{self._homes}/{broker_id}"
        value = json.dumps({"format": FORMAT, "host": host}).encode()
        try:
            try:
                self._client.set(path, value)
            except NoNodeError:
                self._client.create(path, value, makepath=True)
        except NodeExistsError:
            return  # another report of the same broker was first
        except KazooException as error:
            logger.warning("the host of broker %d is not recorded: %r", broker_id, error)

    def remove(self, broker_id: int) -> None:
        """The broker is no member of the cluster any more."""
        try:
            self._client.delete(f"{self._homes}/{broker_id}")
        except NoNodeError:
            return
        except KazooException as error:
            logger.warning("the host of broker %d is still recorded: %r", broker_id, error)
