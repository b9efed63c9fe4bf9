"""API keys that are answered with a refusal; the connection stays open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.wire.apis import k17_sasl_handshake as k17
from headwater.wire.apis import k36_sasl_authenticate as k36
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.schema import Message
from solo_broker import SoloBroker
from unit.network.test_data_plane import serve

NO_SASL = ErrorCode.ILLEGAL_SASL_STATE

WHOLE: list[tuple[Message, type[Message], ErrorCode]] = [
    (k17.SaslHandshakeRequest(mechanism="PLAIN"), k17.SaslHandshakeResponse, NO_SASL),
    (k36.SaslAuthenticateRequest(auth_bytes=b"x"), k36.SaslAuthenticateResponse, NO_SASL),
]


def versions(request: type[Message]) -> range:
    return range(request.versions[0], request.versions[1] + 1)


@pytest.mark.parametrize(("request_", "response", "code"), WHOLE, ids=lambda value: str(value)[:40])
def test_a_refusal_of_the_whole_request(
    tmp_path: Path, request_: Message, response: type[Any], code: ErrorCode
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        for version in versions(type(request_)):
            assert (await c.call(request_, response, version=version)).error_code == code
        await c.call(ApiVersionsRequest(), ApiVersionsResponse)  # the connection goes on

    serve(tmp_path, story)
