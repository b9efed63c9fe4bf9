"""Blocking clients with the time limits of an option set. No pyspark, no gRPC: tasks use it."""

from __future__ import annotations

from headwater.client.blocking.record_client import RecordClient
from headwater_spark.options import Timeouts
from headwater_spark.task_security import NO_SECURITY, TaskSecurity

DEFAULT_TIMEOUTS = Timeouts()


def record_client(
    bootstrap_servers: str,
    client_id: str,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    security: TaskSecurity = NO_SECURITY,
) -> RecordClient:
    """A blocking client of a cluster that retries for `timeouts.retry_s`."""
    return RecordClient(
        bootstrap_servers,
        client_id=client_id,
        request_timeout_s=timeouts.request_s,
        retry_timeout_s=timeouts.retry_s,
        credentials=security.credentials(),
    )
