"""OAUTHBEARER among the options of clients and of listeners."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.security.client_security import credentials_of
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_broker.app.config import from_properties
from headwater_broker.app.sasl_listeners import SaslParts, sasl_authenticator
from unit.security.test_oauthbearer import SIGNING, key_set

CLIENT = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def test_a_client_shows_the_token_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a.b.c")
    made = credentials_of(
        {
            **CLIENT,
            "sasl.jaas.config": f"{MODULE} required;",
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
        }
    )
    exchange = made.sasl("host")
    assert exchange is not None and exchange.step(b"") == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    with pytest.raises(UsageError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        credentials_of(CLIENT)


def listener(**oauth: str) -> None:
    prefix = "listener.name.sasl.oauthbearer.sasl.oauthbearer."
    config = from_properties(
        {
            "broker.id": "1",
            "listeners": "SASL://127.0.0.1:0",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SASL",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            **{prefix + key.replace("_", "."): value for key, value in oauth.items()},
        }
    )
    parts = SaslParts(users=dict, secret=b"s", clock=ManualClock(), entropy=SeededEntropy())
    assert sasl_authenticator(config, "SASL", parts) is not None


def test_a_listener_needs_keys_issuer_and_audience(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(key_set(SIGNING))
    whole = {
        "jwks_endpoint_url": path.as_uri(),
        "expected_issuer": "https://idp",
        "expected_audience": "kafka",
    }
    listener(**whole)
    for missing in whole:
        given = {key: value for key, value in whole.items() if key != missing}
        with pytest.raises(UsageError, match=missing.replace("_", r"\.")):
            listener(**given)
    path.write_text("{}")
    with pytest.raises(UsageError, match="no keys"):
        listener(**whole)
