"""Raw clients with the options' time limits. No pyspark, no gRPC: tasks use it."""

from __future__ import annotations

from headwater.client.blocking.record_client import RecordClient
from headwater_spark.options import Timeouts

USUAL = Timeouts()


def raw_client(bootstrap_servers: str, client_id: str, timeouts: Timeouts = USUAL) -> RecordClient:
    """A client that tries again for as long as the options say."""
    return RecordClient(
        bootstrap_servers,
        client_id=client_id,
        request_timeout_s=timeouts.request_s,
        retry_timeout_s=timeouts.retry_s,
    )
