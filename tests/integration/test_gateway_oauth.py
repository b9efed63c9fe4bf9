"""Bearer logins at the gateway: tokens that a real broker checks with keys of a real endpoint."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwk, jwt

from headwater import Admin, NewTopic
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, PatternType, PermissionType
from integration.cluster import LocalCluster
from integration.registry_process import http_process
from self_signed import CERTIFICATE, KEY

pytestmark = [pytest.mark.integration, pytest.mark.long]

SASL_OFFSET, GATEWAY_OFFSET = 5, 6
LISTENER = "listener.name.sasl_plaintext."
OAUTH = f"{LISTENER}oauthbearer.sasl.oauthbearer."
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
JSON_V2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}
RECORDS = json.dumps({"records": [{"value": 1}]})
IN_FORCE_S = 20.0
ONE = jwk.generate_key("RSA", 2048, {"kid": "one"})
TWO = jwk.generate_key("RSA", 2048, {"kid": "two"})


class KeyServer:
    """A JWKS endpoint over https."""

    def __init__(self, folder: Path) -> None:
        self.keys = [ONE]
        self.asked = 0
        self.certificate = folder / "keys.pem"
        self.certificate.write_bytes(CERTIFICATE)
        secret = folder / "keys.key"
        secret.write_bytes(KEY)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, secret)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_address[1]}/jwks.json"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked += 1
                keys = [key.as_dict(private=False) for key in owner.keys]
                body = json.dumps({"keys": keys}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        return Handler

    @contextmanager
    def serving(self) -> Iterator[KeyServer]:
        """Serve within the block."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def token(key: Any = ONE, **change: Any) -> str:
    claims = {
        "iss": "https://idp", "aud": "kafka", "sub": "carol", "exp": int(time.time()) + 300,
    } | change  # fmt: skip
    return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key, algorithms=["RS256"])


def properties(keys: KeyServer, port: int) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{port + SASL_OFFSET}"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        f"{LISTENER}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{LISTENER}oauthbearer.sasl.jaas.config": (
            f'{MODULE} required ssl.truststore.location="{keys.certificate}" '
            'ssl.truststore.type="PEM";'
        ),
        f"{OAUTH}jwks.endpoint.url": keys.url,
        # Keys that nobody knows make it look once a minute: this finds changed ones sooner.
        f"{OAUTH}jwks.endpoint.refresh.ms": "500",
        f"{OAUTH}expected.issuer": "https://idp",
        f"{OAUTH}expected.audience": "kafka",
    }


def carols_rights() -> list[AclBinding]:
    return [
        AclBinding(
            ResourceType.TOPIC, "flights", PatternType.LITERAL, "User:carol", "*", operation,
            PermissionType.ALLOW,
        )
        for operation in (Operation.WRITE, Operation.DESCRIBE)
    ]  # fmt: skip


@pytest.fixture
def gateway(tmp_path: Path, free_base_port: int) -> Iterator[tuple[str, KeyServer]]:
    """The URL of a gateway before a broker that checks tokens, and the keys' endpoint."""
    port = free_base_port
    config = tmp_path / "gateway.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\n")
    words = (
        "gateway", "--bootstrap-server", f"127.0.0.1:{port + SASL_OFFSET}", "--listen",
        f"127.0.0.1:{port + GATEWAY_OFFSET}", "--command-config", str(config), "--trusted-proxy",
        "127.0.0.1", "--allowed-host", "gateway.example",
    )  # fmt: skip
    with (
        KeyServer(tmp_path).serving() as keys,
        LocalCluster(tmp_path / "c", port, 1, properties(keys, port)) as cluster,
    ):
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("flights", 1, 1)])
            admin.create_acls(carols_rights())
        with http_process(words, tmp_path / "gateway.log") as process:
            yield process.url, keys


def sent(url: str, bearer: str, **headers: str) -> httpx.Response:
    login = {"Authorization": f"Bearer {bearer}", **JSON_V2, **headers}
    return httpx.post(f"{url}/topics/flights", content=RECORDS, headers=login, timeout=60)


def test_tokens_are_checked_by_the_brokers_and_their_acls_decide(
    gateway: tuple[str, KeyServer], tmp_path: Path
) -> None:
    url, keys = gateway
    deadline = time.monotonic() + IN_FORCE_S
    while (reply := sent(url, token())).status_code == 403:  # ACLs are in force after a moment
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert reply.status_code == 200 and reply.json()["offsets"][0]["offset"] == 0, reply.text
    assert keys.asked >= 1
    refusals = {
        "of another audience": token(aud="other"),
        "of another issuer": token(iss="https://evil"),
        "expired": token(exp=int(time.time()) - 600),
        "of a key that the endpoint has not": token(TWO),
        "of a key with a known name": jwt.encode(
            {"alg": "RS256", "kid": "one"},
            {"iss": "https://idp", "aud": "kafka", "sub": "carol", "exp": int(time.time()) + 300},
            TWO,
            algorithms=["RS256"],
        ),
        "no JWT": "opaque-token",
    }
    for what, bearer in refusals.items():
        refused = sent(url, bearer)
        assert [refused.status_code, refused.json()["error_code"]] == [401, 40101], what
    dave = sent(url, token(sub="dave"))
    assert dave.status_code in (403, 404), "he has no right on the topic"
    assert httpx.get(f"{url}/topics", timeout=60).status_code == 401

    # The keys are changed; the proxy before the gateway tells who asked.
    keys.keys = [TWO]
    forwarded = {
        "Host": "gateway.example", "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7",
    }  # fmt: skip
    deadline = time.monotonic() + IN_FORCE_S
    while (reply := sent(url, token(TWO), **forwarded)).status_code == 401:
        assert time.monotonic() < deadline, "the broker reads the new keys"
        time.sleep(0.5)
    assert reply.status_code == 200, reply.text
    log = (tmp_path / "gateway.log").read_text()
    assert "Principal = User:carol asked the gateway: POST /topics/flights from host = 127" in log
    assert "from host = 203.0.113.7: HTTP 200" in log
    assert token()[:40] not in log and "Traceback" not in log
