"""Failed log directories: replicas go offline, and the controller is informed (KIP-112)."""

from __future__ import annotations

from collections.abc import Callable

from headwater_broker.api.background_calls import Background
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.metadata.registration import RegistrationManager
from headwater_broker.replica.replica_manager import ReplicaManager


class LogDirFailures:
    """Takes the replicas of a failed directory offline, so that other brokers lead (KIP-112).

    Without any directory left there is nothing to serve: the process ends, as in Kafka.
    """

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        registration: RegistrationManager,
        background: Background,
        is_ready: Callable[[], bool],
        stop: Callable[[str], None],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._registration = registration
        self._background = background
        self._is_ready = is_ready
        self._stop = stop

    def log_dir_failed(self, folder: str, logs: list[UnifiedLog]) -> None:
        """A listener of `LogManager.on_offline`."""
        self._replicas.directory_failed(folder, logs)
        if not self._logs.directory_ids:
            self._stop("every log directory has failed")
        self._registration.unreported_log_dir_failures += 1
        self.report()

    def report(self) -> None:
        """Inform the controller of failures that it does not know of; a timer calls this."""
        if self._registration.unreported_log_dir_failures and self._is_ready():
            report = self._registration.report_log_dir_failures
            self._background.once("log dir failures", report)
