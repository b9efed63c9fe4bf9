"""Requests to the manager of a cluster on another host, through the cluster's ZooKeeper.

    /headwater/manager                      ephemeral: the Spark driver that manages the brokers
    /headwater/requests/request-0000000007  ephemeral of the client: its request, then the reply

ZooKeeper is the one address that driver, executors and operators have in common, and its sessions
say which driver lives. So a second driver of the same cluster is refused, on whichever host it is.
A client writes `{"format": 1, "request": {...}}`; the manager replaces that by `{"format": 1,
"event": {...}}` for each event of `supervisor_socket`. A request ends with its client: one that no
manager has begun is then never carried out. Whoever may write to ZooKeeper may send requests; they
could change the cluster's metadata as well.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from headwater.errors import HeadwaterError, UsageError
from headwater.local.broker_homes import BrokerHomes
from headwater.local.supervisor_socket import Event, Handler, failure, raise_failure
from headwater.local.zk_client import NO_SECURITY, SECRET_ACL, ZooKeeperSecurity, kazoo_client
from headwater.system import SystemClock

logger = logging.getLogger(__name__)

MANAGER = "/headwater/manager"
REQUESTS = "/headwater/requests"
BROKERS = "/brokers/ids"
FORMAT = 1
SESSION_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 30.0
FORMER_MANAGER_S = 15.0
"""How long a new manager waits for the session of a former one to expire."""
POLL_S = 2.0
"""Watches wake earlier; the poll finds what a lost connection has hidden."""


class ZkRequests:
    """The manager's side: claims the cluster, and serves requests in a thread, one at a time."""

    def __init__(
        self,
        servers: str,
        manager: dict[str, Any],
        handler: Handler,
        security: ZooKeeperSecurity = NO_SECURITY,
    ) -> None:
        """`manager` says to operators which process manages the cluster."""
        self._manager = {"format": FORMAT, **manager}
        self._handler = handler
        self._clock = SystemClock()
        self._servers = servers
        self._client, self._root = _client(servers, security)
        self.homes = BrokerHomes(self._client, self._root)
        self._wake = threading.Event()
        self._closed = False
        self._begun: set[str] = set()
        self._thread = threading.Thread(target=self._serve, name="zk-requests", daemon=True)

    def open(self, wait_s: float = FORMER_MANAGER_S) -> None:
        """Claim the cluster, then serve. Raises UsageError while another manager lives."""
        try:
            self._client.start(CONNECT_TIMEOUT_S)
            self._client.ensure_path(self._root + REQUESTS)
            self._claim_within(wait_s)
        except (KazooException, KazooTimeoutError, OSError) as error:
            self._stop_client()
            raise HeadwaterError(f"ZooKeeper at {self._servers}: {error!r}") from error
        except BaseException:
            self._stop_client()
            raise
        self._thread.start()

    def wait_unregistered(self, broker_ids: Iterable[int], timeout_s: float) -> list[int]:
        """Wait until none of these brokers is registered; those that still are after that."""
        left = {i: threading.Event() for i in broker_ids}
        for broker_id, gone in list(left.items()):
            path = f"{self._root}{BROKERS}/{broker_id}"
            if not self._client.exists(path, watch=lambda _event, gone=gone: gone.set()):
                del left[broker_id]
        deadline = self._clock.monotonic() + timeout_s
        for gone in left.values():
            gone.wait(max(0.0, deadline - self._clock.monotonic()))
        return [i for i in left if self._client.exists(f"{self._root}{BROKERS}/{i}")]

    def close(self) -> None:
        """Give the cluster up and serve no more. A request in progress is not waited for."""
        self._closed = True
        self._wake.set()
        self._stop_client()

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()

    def _claim_within(self, wait_s: float) -> None:
        gone = threading.Event()
        for is_last in (False, True):
            if self._claim():
                return
            former = self._client.exists(self._root + MANAGER, watch=lambda _event: gone.set())
            if former and not is_last:
                gone.wait(wait_s)
        raise UsageError(
            f"another driver manages this cluster: {self._holder()}: stop it first, or use its"
            " cluster with Cluster.attach"
        )

    def _claim(self) -> bool:
        """Make this session the owner of the manager's node; False if another one is."""
        value = json.dumps(self._manager).encode()
        try:
            self._client.create(self._root + MANAGER, value, ephemeral=True, makepath=True)
            return True
        except NodeExistsError:
            found = self._client.exists(self._root + MANAGER)
            own = self._client.client_id
            return bool(found and own and found.ephemeralOwner == own[0])

    def _holder(self) -> str:
        try:
            data, _ = self._client.get(self._root + MANAGER)
        except NoNodeError:
            return "it has just ended"
        found = _document(data)
        return ", ".join(f"{key} {value}" for key, value in found.items() if key != "format")

    def _serve(self) -> None:
        while not self._closed:
            self._wake.clear()
            try:
                if self._claim():
                    requests = self._root + REQUESTS
                    for name in sorted(self._client.get_children(requests, watch=self._woken)):
                        self._answer(name)
                else:
                    logger.error("another driver manages this cluster now: %s", self._holder())
            except (KazooException, KazooTimeoutError, OSError) as error:
                if not self._closed:
                    logger.warning("requests through ZooKeeper are not served: %r", error)
            self._wake.wait(POLL_S)

    def _woken(self, _event: object) -> None:
        self._wake.set()

    def _answer(self, name: str) -> None:
        path = f"{self._root}{REQUESTS}/{name}"
        try:
            data, _ = self._client.get(path)
        except NoNodeError:
            return  # its client has ended
        request = _document(data).get("request")
        if name in self._begun or not isinstance(request, dict):
            return
        self._begun.add(name)

        def report(event: Event) -> None:
            document = json.dumps({"format": FORMAT, "event": event}).encode()
            try:
                self._client.set(path, document)
            except (KazooException, KazooTimeoutError) as error:
                logger.info("%s: its client has gone: %r", name, error)  # the change goes on

        try:
            report(self._handler(request, report))
        except HeadwaterError as error:
            report(failure(error))
        except Exception as error:
            logger.exception("a request through ZooKeeper failed")
            report(failure(HeadwaterError(repr(error))))


class ZkManagerClient:
    """The client's side: requests to the manager that has claimed the cluster."""

    def __init__(
        self,
        servers: str,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        security: ZooKeeperSecurity = NO_SECURITY,
    ) -> None:
        self._security = security
        self._servers = servers
        self._connect_timeout_s = connect_timeout_s

    def ask(self, command: str, **arguments: Any) -> Iterator[Event]:
        """Send a request; its events up to and including `done`. Raises HeadwaterError."""
        client, root = _client(self._servers, self._security)
        try:
            client.start(self._connect_timeout_s)
            yield from self._events(client, root, {"command": command, **arguments})
        except NoAuthError as error:
            raise UsageError(
                f"ZooKeeper at {self._servers} takes requests only with the cluster's credentials:"
                " give its D/security/secrets.properties (--zookeeper-config)"
            ) from error
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise HeadwaterError(
                f"ZooKeeper at {self._servers}: {error!r}: the request may have been carried out:"
                " run this command again, it continues"
            ) from error
        finally:
            client.stop()
            client.close()

    def _events(self, client: KazooClient, root: str, request: dict[str, Any]) -> Iterator[Event]:
        if not client.exists(root + MANAGER):
            raise HeadwaterError(self._unmanaged())
        value = json.dumps({"format": FORMAT, "request": request}).encode()
        # The reply may have a part of a log: it is for who shows the cluster's credentials.
        acl = list(SECRET_ACL) if self._security.set_acl else None
        path = client.create(
            f"{root}{REQUESTS}/request-", value, acl, ephemeral=True, sequence=True, makepath=True
        )
        seen = 0
        while True:
            changed = threading.Event()
            data, stat = client.get(path, watch=lambda _e, changed=changed: changed.set())
            event = _document(data).get("event")
            if event is not None and stat.version > seen:
                seen = stat.version
                if event["event"] == "failed":
                    raise_failure(event)
                yield event
                if event["event"] == "done":
                    return
            if not changed.wait(POLL_S) and not client.exists(root + MANAGER):
                raise HeadwaterError(self._unmanaged())

    def _unmanaged(self) -> str:
        return (
            f"no Spark driver manages the cluster at ZooKeeper {self._servers}: start one"
            " (Cluster.start, headwater up --spark), or name the folder of a local cluster (--dir)"
        )


def _client(servers: str, security: ZooKeeperSecurity) -> tuple[KazooClient, str]:
    """A client of `host:port,.../chroot`, and the chroot, which may not exist yet."""
    hosts, slash, chroot = servers.partition("/")
    return kazoo_client(hosts, security, timeout=SESSION_TIMEOUT_S), slash + chroot


def _document(data: bytes) -> dict[str, Any]:
    """The JSON object of a node; empty for another format."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    is_ours = isinstance(found, dict) and found.get("format") == FORMAT
    return found if is_ours else {}
