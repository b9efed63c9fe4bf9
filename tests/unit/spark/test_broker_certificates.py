"""Brokers' certificates under Spark: the key stays with the task, the driver signs and renews."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError, UsageError
from headwater.local.security_folder import SecurityFolder
from headwater.security.certificates import certificate_facts
from headwater_spark.cluster.broker_certificates import BrokerCertificates
from headwater_spark.cluster.broker_files import KEY_STORE, TRUST_STORE, BrokerFiles
from headwater_spark.cluster.driver_link import INSTALL, RENEW, TaskLink

DAY_MS = 86_400_000


class FakeClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.ms = 1_795_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Task(TaskLink):
    """A task on the other end of a link: it answers at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "security" / "broker-1"
        config = folder / "conf" / "broker-1.properties"
        self.files = BrokerFiles("broker-1", config, self.folder)
        self.is_deaf = False
        self.is_full = False

    def ask(self, command: str, _timeout_s: float, **arguments: Any) -> dict[str, Any]:
        if self.is_deaf:
            raise HeadwaterError("the broker's Spark task has ended")
        if command == RENEW:
            return {"signing_request": self.files.signing_request().decode()}
        assert command == INSTALL
        if self.is_full:
            raise UsageError("No space left on device")
        self.files.install(arguments["certificate"], arguments["trusted"])
        return {}


class Driver:
    """The authority, and the certificates that it signs for one task."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.authority = SecurityFolder(folder / "driver", self.clock)
        self.authority.create("cluster", {})
        self.task = Task(folder / "host")
        self.certificates = BrokerCertificates(
            self.authority, self.clock, lambda: [("broker-1", self.task)]
        )

    def welcome(self) -> None:
        request = self.task.files.signing_request().decode()
        answer = self.certificates.answer("broker-1", "10.0.0.7", request)
        self.task.files.install(answer["certificate"], answer["trusted"])

    @property
    def store(self) -> bytes:
        return (self.task.folder / KEY_STORE).read_bytes()


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    found = Driver(tmp_path)
    found.welcome()
    return found


def test_a_broker_gets_a_certificate_for_its_own_key(driver: Driver, tmp_path: Path) -> None:
    facts = certificate_facts(driver.store)
    assert facts.subject == "CN=broker-1" and facts.hosts == ("10.0.0.7", "localhost")
    assert b"PRIVATE KEY" in driver.store
    for path in (driver.task.folder / KEY_STORE, driver.task.folder / TRUST_STORE):
        assert path.stat().st_mode & 0o777 == 0o600
    assert driver.task.folder.stat().st_mode & 0o777 == 0o700
    kept = [p.name for p in (tmp_path / "driver" / "security").iterdir()]
    assert sorted(kept) == ["authority.pem", "ca.pem"], "the driver knows no broker's key"


def test_a_certificate_is_renewed_when_it_is_due(driver: Driver) -> None:
    before = driver.store
    assert driver.certificates.renew_due() == []
    driver.clock.ms += 59 * DAY_MS
    assert driver.certificates.renew_due() == []
    driver.clock.ms += 2 * DAY_MS
    assert driver.certificates.renew_due() == ["broker-1"]
    assert driver.store != before
    assert driver.certificates.renew_due() == []


def test_a_new_authority_reaches_the_broker_step_by_step(driver: Driver) -> None:
    former = driver.authority.authority_id()
    driver.authority.trust_next("cluster")
    assert driver.certificates.renew_due() == ["broker-1"]
    assert (driver.task.folder / TRUST_STORE).read_bytes().count(b"BEGIN CERTIFICATE") == 2
    driver.authority.reissue()
    assert driver.certificates.renew_due() == ["broker-1"]
    assert driver.authority.authority_id() != former
    driver.authority.drop_former()
    assert driver.certificates.renew_due() == ["broker-1"]
    assert (driver.task.folder / TRUST_STORE).read_bytes() == driver.authority.trusted()


def test_a_task_that_does_not_answer_is_asked_again(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.clock.ms += 61 * DAY_MS
    driver.task.is_deaf = True
    assert driver.certificates.renew_due() == []
    assert "broker-1 is not renewed: the broker's Spark task has ended" in caplog.text
    driver.task.is_deaf, driver.task.is_full = False, True
    assert driver.certificates.renew_due() == []
    driver.task.is_full = False
    assert driver.certificates.renew_due() == ["broker-1"]


def test_a_host_that_is_none_gets_no_certificate(driver: Driver) -> None:
    request = driver.task.files.signing_request().decode()
    with pytest.raises(UsageError, match="no host name or address"):
        driver.certificates.answer("broker-1", "a b", request)
    with pytest.raises(UsageError, match="no certificate signing request"):
        driver.certificates.answer("broker-1", "10.0.0.7", "hello")


def test_a_certificate_that_was_not_asked_for_is_refused(tmp_path: Path) -> None:
    files = BrokerFiles("broker-1", tmp_path / "c", tmp_path / "s")
    with pytest.raises(UsageError, match="not asked for"):
        files.install("certificate", "trusted")
