"""While `headwater restore` has not committed groups' offsets, no group finds its coordinator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client.connection import open_connection
from headwater.errors import ErrorCode as E
from headwater.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from headwater.wire.apis import k10_find_coordinator as k10
from solo_broker import SoloBroker

GROUP, TRANSACTIONAL_ID = 0, 1


@pytest.mark.parametrize(
    ("client_id", "key_type", "pending", "code"),
    [
        ("app", GROUP, "true", E.COORDINATOR_NOT_AVAILABLE),
        ("headwater-restore", GROUP, "true", E.NONE),
        ("app", TRANSACTIONAL_ID, "true", E.NONE),
        ("app", GROUP, "false", E.NONE),
    ],
)
def test_who_finds_a_coordinator(
    tmp_path: Path, client_id: str, key_type: int, pending: str, code: E
) -> None:
    async def story() -> None:
        properties = {"headwater_restore_groups_pending": pending}
        async with SoloBroker(tmp_path, **properties) as broker:
            broker.create_topic(OFFSETS_TOPIC, 1)
            broker.create_topic(TRANSACTION_TOPIC, 1)
            c = await open_connection("127.0.0.1", broker.port, client_id=client_id)
            request = k10.FindCoordinatorRequest(key_type=key_type, coordinator_keys=("k",))
            reply = await c.call(request, k10.FindCoordinatorResponse, version=4)
            (row,) = reply.coordinators
            assert row.error_code == code
            assert ("headwater restore" in (row.error_message or "")) is (code is not E.NONE)
            c.close()

    asyncio.run(story())
