"""Builds a whole service from its options and runs it until it is asked to stop.

This module loads pyarrow, numba and deltalake, some 150 MB: `headwater tier serve` imports it once
there is a topic to tier.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.columnar.decode import warm_up
from headwater.entropy import Entropy
from headwater_tier.service.file_writers import FileWriters
from headwater_tier.service.maintenance import Maintenance
from headwater_tier.service.membership import TierMember
from headwater_tier.service.options import ServiceOptions
from headwater_tier.service.reports import Reporter
from headwater_tier.service.service import TieringService

ONCE_TIMEOUT_S = 3600.0


@dataclass(slots=True)
class Engine:
    """The parts of one service."""

    service: TieringService
    member: TierMember
    maintenance: Maintenance
    reporter: Reporter

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Run until `stop`; with `once`, until every topic's committed records are in its table or
        its tiering has failed."""
        self.maintenance.start()
        self.service.schedule.is_draining = once
        try:
            while not stop.is_set():
                self.service.step()
                self.reporter.tick(self.service.topics, self.service.schedule.topics)
                if once and self._is_done():
                    break
        finally:
            self.service.close()
            self.reporter.tick(self.service.topics, self.service.schedule.topics, force=True)
            self.member.close()
            self.maintenance.close()

    def _is_done(self) -> bool:
        service = self.service
        if service.problem or not service.topics:
            return False
        schedules = service.schedule.topics
        return all(
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
    warm_up()
    member = TierMember(options.bootstrap_servers, clock, options.credentials)
    maintenance = Maintenance(lambda: service.tables, options.brokers(), clock, entropy)
    brokers = options.brokers()
    service = TieringService(
        options.finder(brokers),
        brokers,
        FileWriters(options.client, clock, entropy),
        clock,
        member,
        (maintenance,),
    )
    reporter = Reporter(member.report, clock, f"{socket.gethostname()}:{os.getpid()}")
    return Engine(service, member, maintenance, reporter)
