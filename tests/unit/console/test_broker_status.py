"""What Headwater's brokers tell of themselves, on the pages of the brokers."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

import pytest

from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode
from headwater_gateway.console.views import broker_status
from headwater_gateway.console.views.broker_status import LiveStatus, live_status
from unit.console.consoles import Console
from unit.console.full_cluster import full_admin

DOCUMENT = {
    "format": 1,
    "rates": {"bytes_in": 2048.0, "bytes_out": 3 * 2**20, "records_in": 12.0},
    "rss_bytes": 80 * 2**20,
    "connections": 7,
    "started_ms": 0,
}


class Client:
    """A broker's status client; broker 1 refuses."""

    asked = 0

    def __init__(self, address: str, credentials: Any) -> None:
        self.document = json.dumps(DOCUMENT)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def status(self) -> Client:
        Client.asked += 1
        if Client.asked > 1:
            raise kafka_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
        return self


def test_figures_of_brokers_that_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_status, "BrokerStatusClient", Client)
    monkeypatch.setattr(Client, "asked", 0)
    text = Console(full_admin()).get("/brokers")
    assert text.count("2.0 KiB/s") == 1 and "3.0 MiB/s" in text and "80.0 MiB" in text


def test_brokers_of_others_are_listed_without() -> None:
    text = Console(full_admin()).get("/brokers")
    assert "KiB/s" not in text and "Memory" not in text


def test_a_status_document_is_read_by_its_format() -> None:
    assert live_status(DOCUMENT) == LiveStatus(2048.0, 3 * 2**20, 12.0, 80 * 2**20, 7, 0)
    with pytest.raises(ValueError, match="without rates"):
        live_status({"format": 1})
