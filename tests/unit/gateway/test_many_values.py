"""A body of few bytes a value is refused before it takes a hundred times its size in memory."""

from __future__ import annotations

from typing import Any

import pytest

from headwater_gateway.rest.documents import VALUES_MAX
from headwater_gateway.rest.v2_produce import RECORDS_MAX
from unit.gateway.rest_gateways import JSON_V2, Rest, with_rest


@pytest.mark.parametrize("count", [RECORDS_MAX + 1, VALUES_MAX])
def test_too_many_records_of_one_request(count: int) -> None:
    body = b'{"records":[' + b"{}," * (count - 1) + b"{}]}"

    async def work(rest: Rest) -> Any:
        refused = await rest.ask("POST", "/topics/flights", body, JSON_V2)
        assert not rest.cluster.log("flights", 0) and not rest.cluster.log("flights", 1)
        return refused

    assert with_rest(work) == [413, 413]
