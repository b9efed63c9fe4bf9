"""Builds a whole service from its options and runs it until it is asked to stop.

This module loads pyarrow, numba and deltalake, some 150 MB: `headwater tier serve` imports it once
there is a topic to tier.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.columnar.decode import warm_up
from headwater.entropy import Entropy
from headwater.ports.credentials import NO_CREDENTIALS
from headwater_tier.catalog.keeper import CatalogKeeper
from headwater_tier.catalog.open import CatalogOptions
from headwater_tier.kernels import KERNELS
from headwater_tier.service.derived_tables import DerivedTables
from headwater_tier.service.file_writers import FileWriters
from headwater_tier.service.maintenance import Maintenance
from headwater_tier.service.membership import TierMember
from headwater_tier.service.memory import limit_arenas, release
from headwater_tier.service.options import ServiceOptions
from headwater_tier.service.reports import Reporter
from headwater_tier.service.service import TieringService
from headwater_tier.typed.decoding import SchemaSource
from headwater_tier.typed.registry_client import RegistryClient
from headwater_tier.typed.without_registry import WithoutRegistry

IDLE_AFTER_S = 10.0
"""After so long without a commit unused memory is given back."""
TELL_EVERY_S = 0.2
"""How often reports that are due are looked for, among those of thousands of topics perhaps."""


@dataclass(slots=True)
class Engine:
    """The parts of one service."""

    service: TieringService
    member: TierMember
    maintenance: Maintenance
    reporter: Reporter
    clock: Clock
    derived: DerivedTables
    catalog: CatalogKeeper | None = None
    options: ServiceOptions | None = None
    """For its metrics; None: they are not served."""
    _commits: int = -1
    _commits_at: float = 0.0
    _is_released: bool = False
    _told_at: float = float("-inf")

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Run until `stop`; with `once`, until every topic's committed records are in its table or
        its tiering has failed."""
        stop_metrics = self._serve_metrics()
        self.maintenance.start()
        self.derived.start()
        if self.catalog is not None:
            self.catalog.start()
        self.service.schedule.is_draining = once
        try:
            while not stop.is_set():
                self.service.step()
                now = self.clock.monotonic()
                if now - self._told_at >= TELL_EVERY_S:
                    self._told_at = now
                    self.reporter.tick(self.service.topics, self.service.schedule.topics)
                    self._release_when_idle()
                if once and self._is_done():
                    break
        finally:
            stop_metrics()
            self.service.close()
            self.derived.close()
            self.reporter.tick(self.service.topics, self.service.schedule.topics, force=True)
            self.member.close()
            self.maintenance.close()
            if self.catalog is not None:
                self.catalog.close()

    def _serve_metrics(self) -> Callable[[], None]:
        options = self.options
        if options is None or not options.metrics_listener:
            return lambda: None
        # Only when asked for: it is not needed otherwise.
        from headwater.operations.metrics_server import (  # noqa: PLC0415
            MetricsListener,
            serve_metrics,
        )
        from headwater_tier.service.metrics import ServiceCollector  # noqa: PLC0415

        def folded_files() -> int:
            return self.maintenance.folded_files

        collector = ServiceCollector(self.service, folded_files, self.clock)
        listener = MetricsListener(
            "--metrics",
            options.metrics_listener,
            options.metrics_config,
            is_secure=options.credentials is not NO_CREDENTIALS,
        )
        return serve_metrics(listener, collector)

    def _release_when_idle(self) -> None:
        """Give memory back, once in each pause of all topics."""
        commits = sum(state.commits for state in self.service.topics.values())
        now = self.clock.monotonic()
        if commits != self._commits:
            self._commits, self._commits_at, self._is_released = commits, now, False
        elif not self._is_released and now - self._commits_at >= IDLE_AFTER_S:
            self._is_released = True
            release()

    def _is_done(self) -> bool:
        service = self.service
        if service.problem or not service.topics:
            return False
        schedules = service.schedule.topics
        return self.derived.is_idle and all(
            state.error
            or (
                state.planned is not None
                and not state.in_flight
                and schedules[name].looked_at > float("-inf")
                and schedules[name].pending_since is None
            )
            for name, state in service.topics.items()
        )


def build(options: ServiceOptions, clock: Clock, entropy: Entropy) -> Engine:
    """The parts, connected; nothing runs yet but the table thread."""
    limit_arenas()
    member = TierMember(options.bootstrap_servers, clock, options.credentials, options.instance_id)
    maintenance = Maintenance(lambda: service.tables, options.brokers(), clock, entropy)
    derived = DerivedTables(_schemas(options, clock), clock)
    brokers = options.brokers()
    catalog = _catalog(options)
    service = TieringService(
        options.finder(brokers),
        brokers,
        FileWriters(options.client, clock, entropy, _kernels),
        clock,
        member,
        (maintenance, derived),
        admits=(lambda _topic: True) if catalog is None else catalog.admits,
    )

    def problem(topic: str) -> str:
        unkept = "" if catalog is None else catalog.status.last_error
        return maintenance.problem(topic) or (
            f"the catalog is not kept: {unkept}" if unkept else ""
        )

    process = f"{socket.gethostname()}:{os.getpid()}"
    reporter = Reporter(member.report, clock, process, derived.status, problem, maintenance.damage)
    return Engine(service, member, maintenance, reporter, clock, derived, catalog, options)


def _kernels() -> None:
    """Load what the first turn needs. In a new installation it waits for the compiler, while the
    group was joined and the first tables were made."""
    KERNELS.wait_for_first()
    warm_up(with_headers=False)


def _schemas(options: ServiceOptions, clock: Clock) -> SchemaSource:
    if not options.schema_registry:
        return WithoutRegistry()
    return RegistryClient(options.schema_registry, options.registry_security, clock)


def _catalog(options: ServiceOptions) -> CatalogKeeper | None:
    found = options.catalog
    if found is None:
        return None
    return CatalogKeeper(
        CatalogOptions(
            bootstrap_servers=options.bootstrap_servers,
            zookeeper=found.zookeeper,
            tables_uri=options.tables_uri,
            storage_options=options.storage_options,
            key_file=found.key_file,
            credentials=options.credentials,
            zookeeper_security=found.zookeeper_security,
        )
    )
