"""`Services`: the processes beside a cluster's brokers, supervised as the brokers are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from headwater.clock import Clock
from headwater.local.child import ChildSpec
from headwater.local.child_restarts import DRAIN_GRACE_S, SupervisedChild
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.data_folders import read_properties
from headwater.local.private_file import write_private
from headwater.local.processes import CLUSTER_DIR_VARIABLE, ProcessRef
from headwater.local.secure_cluster import SecureCluster
from headwater.local.service_spec import ServiceSpec
from headwater.local.zk_properties import CONF, DIGEST, ZOOKEEPER_FILE, zookeeper_file
from headwater.local.zk_tls import tls_rows

logger = logging.getLogger(__name__)

COMMAND_CONFIG_VARIABLE = "HEADWATER_COMMAND_CONFIG"
"""Emptied for services: the file of the user who started the cluster is not theirs."""


class Services:
    """The service processes of one cluster."""

    def __init__(
        self,
        spec: ClusterSpec,
        clock: Clock,
        *,
        security: SecureCluster | None = None,
        properties: Mapping[str, str] | None = None,
        zookeeper: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`properties` are those of every broker beside those of `spec`; `zookeeper` is the
        ensemble where that of `spec` is not used."""
        self._spec = spec
        self._clock = clock
        self._security = security
        self._properties = {**dict(spec.properties), **(properties or {})}
        self._zookeeper = zookeeper or spec.zookeeper
        self._changed = changed
        self._children: list[SupervisedChild] = []

    def start(self, bootstrap_servers: str, internal_servers: str = "") -> None:
        """Start every service. `internal_servers` are the brokers' addresses for clients with a
        certificate, in a secure cluster. Raises ChildFailedError for one that must be ready."""
        self._write_zookeeper_file()
        for service in self._spec.services:
            options = self._options(service, bootstrap_servers, internal_servers)
            child = SupervisedChild(
                ChildSpec(
                    name=service.name,
                    command=(*service.command, *options),
                    log_path=self._spec.logs / f"{service.name}.log",
                    environment={
                        CLUSTER_DIR_VARIABLE: str(self._spec.directory),
                        COMMAND_CONFIG_VARIABLE: "",
                    },
                ),
                self._clock,
                on_ready=lambda _readiness: self._changed(),
                on_gone=lambda _code: self._changed(),
            )
            self._children.append(child)
            child.start()
            if service.awaits_ready:
                child.wait_ready()

    def stop(self, grace_s: float = DRAIN_GRACE_S) -> None:
        """Ask all to end, and wait for it. Safe to repeat."""
        children, self._children = self._children, []
        for child in children:
            child.ask_to_stop()
        for child in children:
            child.finish_stop(grace_s)

    def processes(self) -> tuple[ProcessRef, ...]:
        """The processes that run now."""
        pids = [(child.spec.name, child.pid) for child in list(self._children)]
        return tuple(ProcessRef.of(name, pid) for name, pid in pids if pid is not None)

    def _options(
        self, service: ServiceSpec, bootstrap_servers: str, internal_servers: str
    ) -> tuple[str, ...]:
        options: tuple[str, ...] = ("--bootstrap-server", bootstrap_servers)
        if self._security is not None:
            path = self._security.service_properties(service.name, self._spec)
            options = ("--bootstrap-server", internal_servers, "--command-config", str(path))
            if service.users_option:
                options = (*options, service.users_option, bootstrap_servers)
        if service.takes_zookeeper:
            options = (*options, "--zookeeper", self._zookeeper)
            file = zookeeper_file(self._spec.directory)
            if file is not None:
                options = (*options, "--zookeeper-config", str(file))
        prefix = service.settings_prefix
        settings = {k: v for k, v in self._properties.items() if prefix and k.startswith(prefix)}
        if settings:
            path = self._settings_file(f"{service.name}.properties", settings)
            options = (*options, service.settings_option, str(path))
        return options

    def _write_zookeeper_file(self) -> None:
        """All that a tool needs for ZooKeeper, where the brokers reach it by TLS."""
        if tls := tls_rows(self._properties):
            secrets = {} if self._security is None else read_properties(self._security.secrets)
            digest = {DIGEST: secrets[DIGEST]} if DIGEST in secrets else {}
            self._settings_file(ZOOKEEPER_FILE, {**tls, **digest})
        else:
            (self._spec.directory / CONF / ZOOKEEPER_FILE).unlink(missing_ok=True)

    def _settings_file(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self._spec.directory / CONF / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, "".join(f"{k}={v}\n" for k, v in sorted(settings.items())).encode())
        return path
