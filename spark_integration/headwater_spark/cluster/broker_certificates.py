"""The driver's side of the brokers' certificates: it signs them, and has them renewed.

A broker's key is made by its task, on the broker's host. The task sends a signing request; the name
in the certificate is that of the broker whose entry token the task has shown. A certificate is
renewed when two thirds of its time have passed, and when the authority is replaced (`headwater
certs rotate`); brokers read changed files by themselves.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater.local.security_folder import SecurityFolder
from headwater.security.certificates import certificate_facts
from headwater_spark.cluster.driver_link import INSTALL, RENEW, Report, TaskLink

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
"""Brokers look for changed files every 10 s: with both, all know a step of a rotation in 15 s."""
OWN_EVERY_S = 3_600.0
ASK_TIMEOUT_S = 10.0
HOST_NAME = re.compile(r"[0-9A-Za-z.:_-]{1,255}")
Links = Callable[[], Iterable[tuple[str, TaskLink]]]
"""The brokers with a task, by name, and the connections to these."""


@dataclass(frozen=True, slots=True)
class _Issued:
    """What a broker has been given."""

    host: str
    renewal_ms: int
    authority: str
    trusted: bytes


class BrokerCertificates:
    """The certificates of the brokers of one cluster. Any thread may call."""

    def __init__(self, folder: SecurityFolder, clock: Clock, links: Links) -> None:
        self._folder = folder
        self._clock = clock
        self._links = links
        self._lock = threading.Lock()
        self._issued: dict[str, _Issued] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look, name="certificates", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def close(self) -> None:
        """Renew no more."""
        self._closing.set()

    def answer(self, name: str, host: str, request: str) -> Report:
        """The certificate of a task's first signing request, and the trusted authorities. Raises
        UsageError."""
        facts, issued = self._signed(name, host, request)
        with self._lock:
            self._issued[name] = issued
        return facts

    def _signed(self, name: str, host: str, request: str) -> tuple[Report, _Issued]:
        if not HOST_NAME.fullmatch(host):
            raise UsageError(f"{host!r} is no host name or address: set HEADWATER_ADVERTISED_HOST")
        authority, trusted = self._folder.authority_id(), self._folder.trusted()
        certificate = self._folder.sign(name, (host, "localhost"), request.encode())
        issued = _Issued(host, certificate_facts(certificate).renewal_ms, authority, trusted)
        return {"certificate": certificate.decode(), "trusted": trusted.decode()}, issued

    def renew_due(self) -> list[str]:
        """Give new certificates to the brokers that need them; the brokers' names. What fails is
        logged, and tried again the next time."""
        renewed = []
        authority, trusted = self._folder.authority_id(), self._folder.trusted()
        now_ms = self._clock.now_ms()
        for name, link in self._links():
            with self._lock:
                known = self._issued.get(name)
            if known is None:
                continue  # its task has just come
            is_same = known.authority == authority and known.trusted == trusted
            if is_same and now_ms < known.renewal_ms:
                continue
            try:
                self._renew(name, known.host, link)
                renewed.append(name)
            except HeadwaterError as error:
                logger.warning("the certificate of %s is not renewed: %s", name, error)
        return renewed

    def _renew(self, name: str, host: str, link: TaskLink) -> None:
        request = str(link.ask(RENEW, ASK_TIMEOUT_S)["signing_request"])
        facts, issued = self._signed(name, host, request)
        link.ask(INSTALL, ASK_TIMEOUT_S, **facts)
        with self._lock:
            self._issued[name] = issued

    def _look(self) -> None:
        renewed_s = self._clock.monotonic()
        while not self._closing.wait(LOOK_EVERY_S):
            try:
                self.renew_due()
                if self._clock.monotonic() - renewed_s >= OWN_EVERY_S:
                    renewed_s = self._clock.monotonic()
                    self._folder.renew_due()  # of services beside the driver
            except (HeadwaterError, OSError) as error:
                logger.warning("the brokers' certificates are not renewed: %s", error)
