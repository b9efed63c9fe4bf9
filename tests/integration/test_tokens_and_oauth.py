"""Delegation tokens and OAUTHBEARER with real brokers: the SDK, librdkafka, Kafka's own tool."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from joserfc import jwk, jwt

from headwater import Admin, Consumer, KafkaError, Producer
from integration.cluster import LocalCluster
from integration.jvm_tools import kafka_tool

pytestmark = pytest.mark.integration

PORT = 32_060
SASL_PORT = 32_150
SASL = f"127.0.0.1:{SASL_PORT}"
MODULES = "org.apache.kafka.common.security"
LISTENER = "listener.name.sasl_plaintext."
OAUTH = f"{LISTENER}oauthbearer.sasl.oauthbearer."
KEY = jwk.generate_key("RSA", 2048, {"kid": "one"})


def properties(keys: Path) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{PORT},SASL_PLAINTEXT://{SASL}"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        f"{LISTENER}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{LISTENER}plain.sasl.jaas.config": (
            f'{MODULES}.plain.PlainLoginModule required user_alice="secret" user_bob="secret";'
        ),
        "delegation.token.secret.key": "the secret of all brokers",
        f"{OAUTH}jwks.endpoint.url": keys.as_uri(),
        f"{OAUTH}expected.issuer": "https://idp",
        f"{OAUTH}expected.audience": "kafka",
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("tokens")
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    with LocalCluster(folder, PORT, brokers=1, properties=properties(keys)) as running:
        running.create_topic("t", partitions=1)
        yield running


def plain(user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": SASL,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": "secret",
    }


def by_token(token_id: str, password: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    jaas = (
        f'{MODULES}.scram.ScramLoginModule required username="{token_id}" '
        f'password="{password}" tokenauth="true";'
    )
    return {
        "bootstrap_servers": SASL,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": jaas,
    }


def test_a_token_logs_in_until_it_is_expired(cluster: LocalCluster) -> None:
    with Admin(**plain("alice")) as admin:
        made = admin.create_delegation_token(renewers=["User:bob"])
        assert made.owner == "User:alice" and made.max_timestamp > made.expiry_timestamp

        def known() -> bool:  # brokers follow the tokens' change nodes
            return bool(admin.describe_delegation_tokens(["User:alice"]))

        cluster.wait_until(known, "the broker knows the token")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            options = by_token(made.token_id, made.password, mechanism)
            with Producer(**options) as producer:
                producer.send("t", b"x").result(20)
        refused = pytest.raises(KafkaError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED")
        with Admin(**by_token(made.token_id, made.password)) as of_token, refused:
            of_token.create_delegation_token()
        [seen] = admin.describe_delegation_tokens(["User:alice"])
        assert seen.token_id == made.token_id and seen.hmac == made.hmac
        with Admin(**plain("bob")) as renewer:
            assert renewer.renew_delegation_token(made.hmac, period_ms=60_000) < (
                made.expiry_timestamp
            )
            renewer.expire_delegation_token(made.hmac)
        cluster.wait_until(lambda: not known(), "the broker knows that it has expired")
        with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
            Admin(**by_token(made.token_id, made.password))
        with pytest.raises(KafkaError, match="DELEGATION_TOKEN_NOT_FOUND"):
            admin.renew_delegation_token(made.hmac)
    refused = pytest.raises(KafkaError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED")
    with Admin(cluster.bootstrap) as open_admin, refused:
        open_admin.create_delegation_token()


@pytest.mark.long
def test_kafkas_own_tool_makes_renews_and_ends_tokens(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={MODULES}.plain.PlainLoginModule required "
        'username="alice" password="secret";\n'
    )

    def tool(*arguments: str) -> str:
        server = ("--bootstrap-server", SASL, "--command-config", str(config))
        return kafka_tool("org.apache.kafka.tools.DelegationTokenCommand", *server, *arguments)

    # The archive of the tools' classes is made with the first tool, which must reach the broker.
    plaintext = ("--bootstrap-server", cluster.bootstrap)
    kafka_tool("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", *plaintext)
    made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(r"^(\S+)\s+(\S+==)\s", made, re.MULTILINE)
    assert found, made
    token_id, secret = found.groups()
    assert token_id in tool("--describe", "--owner-principal", "User:alice")
    assert "renew" in tool("--renew", "--renew-time-period", "60000", "--hmac", secret).lower()
    with Producer(**by_token(token_id, secret)) as producer:
        producer.send("t", b"x").result(20)
    assert "expire" in tool("--expire", "--expiry-time-period", "-1", "--hmac", secret).lower()
    assert token_id not in tool("--describe")


def signed(**change: Any) -> str:
    now = int(time.time())
    claims = {"iss": "https://idp", "aud": "kafka", "sub": "carol", "exp": now + 300, **change}
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, KEY, algorithms=["RS256"])


def test_librdkafka_and_the_sdk_log_in_by_oauthbearer(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    errors: list[str] = []

    def client(token: str) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": SASL,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _config: (token, time.time() + 300),
                "error_cb": lambda error: errors.append(str(error)),
            }
        )

    good = client(signed())
    good.produce("t", b"x")
    assert good.flush(20) == 0
    bad = client(signed(aud="other"))
    bad.produce("t", b"x")
    bad.flush(3)
    assert any("uthentication" in text for text in errors), errors
    path = tmp_path / "token"
    path.write_text(signed())
    options = {
        "bootstrap_servers": SASL,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": path.as_uri(),
    }
    with Consumer("t", auto_offset_reset="earliest", **options) as consumer:
        assert next(iter(consumer)).value == b"x"
    head, body, mac = signed().split(".")
    forged = json.loads(base64.urlsafe_b64decode(body + "=="))
    text = base64.urlsafe_b64encode(json.dumps({**forged, "sub": "admin"}).encode())
    path.write_text(f"{head}.{text.rstrip(b'=').decode()}.{mac}")
    with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
        Admin(**options)
