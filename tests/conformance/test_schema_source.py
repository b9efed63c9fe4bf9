"""One suite for where decoders find schemas: the double, the client over HTTP of a stub, and of
Headwater's own registry.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

from headwater.errors import UsageError
from headwater.testing.clocks import ManualClock
from headwater_tier.typed.decoding import SchemaSource
from headwater_tier.typed.memory_schemas import MemorySchemas
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError
from headwater_tier.typed.registry_client import RegistryClient
from unit.registry.registries import Registry

PROTO = 'syntax = "proto3"; message M { string s = 1; }'


class StubRegistry:
    """Confluent's REST, read only, from rows that a test puts in."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((unquote(self.path), self.headers.get("Authorization", "")))
                status, body = outer.answer(self.path)
                self.send_response(status if outer.status == 200 else outer.status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def register(
        self, subject: str, schema_type: str, text: str,
        references: tuple[tuple[str, str], ...] = (),
    ) -> int:  # fmt: skip
        number = 1 + sum(1 for path in self.rows if path.startswith("/schemas/ids/"))
        row: dict[str, Any] = {"schema": text, "id": number}
        if schema_type != "AVRO":
            row["schemaType"] = schema_type
        for name, referred in references:
            self.rows[f"/subjects/{name}/versions/1"] = {"schema": referred}
            row.setdefault("references", []).append({"name": name, "subject": name, "version": 1})
        self.rows[f"/schemas/ids/{number}"] = row
        self.rows[f"/subjects/{subject}/versions/latest"] = row
        return number

    def answer(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET."""
        row = self.rows.get(unquote(path))
        body = json.dumps(row or {"error_code": 40403, "message": "Schema not found"})
        return 200 if row else 404, body.encode()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class HeadwaterRegistry(StubRegistry):
    """The same server in front of Headwater's own registry."""

    def __init__(self) -> None:
        self._registry = Registry()
        super().__init__()

    def register(
        self, subject: str, schema_type: str, text: str,
        references: tuple[tuple[str, str], ...] = (),
    ) -> int:  # fmt: skip
        rows = []
        for name, referred in references:
            self._registry.register(name, referred, schemaType=schema_type)
            rows.append({"name": name, "subject": name, "version": 1})
        found = self._registry.register(subject, text, schemaType=schema_type, references=rows)
        assert isinstance(found, int), found
        return found

    def answer(self, path: str) -> tuple[int, bytes]:
        reply = self._registry.client.get(path)
        return reply.status_code, reply.content


Made = tuple[SchemaSource, Callable[..., int], Callable[[], None]]
"""The source, a way to register, and one to make it fail."""


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    stub = StubRegistry()
    yield stub
    stub.close()


@pytest.fixture
def headwaters() -> Iterator[HeadwaterRegistry]:
    stub = HeadwaterRegistry()
    yield stub
    stub.close()


@pytest.fixture(params=["memory", "registry", "headwaters"])
def made(request: pytest.FixtureRequest) -> Made:
    if request.param == "memory":
        memory = MemorySchemas()

        def fail() -> None:
            memory.fault = "the registry of this test is out of reach"

        return memory, memory.register, fail
    stub: StubRegistry = request.getfixturevalue(request.param)

    def answer_500() -> None:
        stub.status = 500

    return RegistryClient(stub.url), stub.register, answer_500


def test_a_schema_is_found_by_its_id_and_as_its_subjects_latest(made: Made) -> None:
    source, register, _ = made
    first = register("a-value", "AVRO", '"int"')
    next_one = register("a-value", "AVRO", '"long"')
    second = register("t-value", "PROTOBUF", PROTO, (("other.proto", PROTO),))
    found = source.by_id(first)
    assert found is not None
    assert (found.schema_id, found.schema_type, found.text) == (first, "AVRO", '"int"')
    newest = source.latest("a-value")
    assert newest is not None
    assert (newest.schema_id, newest.text) == (next_one, '"long"')
    latest = source.latest("t-value")
    assert latest is not None
    assert (latest.schema_id, latest.schema_type) == (second, "PROTOBUF")
    assert latest.references == (("other.proto", PROTO),)


def test_what_is_not_there_is_none(made: Made) -> None:
    source, _, _ = made
    assert source.by_id(77) is None
    assert source.latest("nobody/s") is None


def test_a_fault_is_no_missing_schema(made: Made) -> None:
    source, register, fail = made
    number = register("t", "AVRO", '"int"')
    fail()
    with pytest.raises(SchemaUnavailableError):
        source.by_id(number)
    with pytest.raises(SchemaUnavailableError):
        source.latest("t")


def test_an_id_is_asked_once_and_a_missing_one_again_after_5_s(registry: StubRegistry) -> None:
    clock = ManualClock()
    client = RegistryClient(registry.url, clock=clock)
    number = registry.register("t", "AVRO", '"int"')
    assert client.by_id(number) == client.by_id(number)
    assert client.by_id(9) is None
    assert client.by_id(9) is None
    assert len(registry.requests) == 2
    clock.advance(5_001)
    assert client.by_id(9) is None
    assert len(registry.requests) == 3


def test_references_of_references_come_first(registry: StubRegistry) -> None:
    number = registry.register("t", "PROTOBUF", PROTO, (("b.proto", "b"), ("a.proto", "a")))
    registry.rows["/subjects/b.proto/versions/1"]["references"] = [
        {"name": "a.proto", "subject": "a.proto", "version": 1}
    ]
    found = RegistryClient(registry.url).by_id(number)
    assert found is not None
    assert found.references == (("a.proto", "a"), ("b.proto", "b"))


@pytest.mark.parametrize(
    "security, shown",
    [
        ({"basic.auth.user.info": "u:p"}, "Basic " + base64.b64encode(b"u:p").decode()),
        ({"schema.registry.basic.auth.user.info": "u:p"}, "Basic dTpw"),
        ({"bearer.auth.token": "abc"}, "Bearer abc"),
        ({"basic.auth.credentials.source": "SASL_INHERIT", "sasl.username": "u",
          "sasl.password": "p"}, "Basic dTpw"),
        ({}, ""),
    ],
)  # fmt: skip
def test_who_asks_is_shown(registry: StubRegistry, security: dict[str, str], shown: str) -> None:
    RegistryClient(registry.url, security).by_id(1)
    assert registry.requests[0][1] == shown


def test_credentials_of_the_url_are_used_and_not_shown(registry: StubRegistry) -> None:
    client = RegistryClient(registry.url.replace("http://", "http://u:secret@"))
    registry.status = 401
    with pytest.raises(SchemaUnavailableError) as raised:
        client.by_id(1)
    assert registry.requests[0][1].startswith("Basic ")
    assert "secret" not in str(raised.value)
    assert registry.url in str(raised.value)
    assert "basic.auth.user.info" in str(raised.value)


def test_a_404_of_something_else_than_a_registry_is_no_missing_schema(
    registry: StubRegistry,
) -> None:
    registry.rows["/schemas/ids/1"] = {"path": "not found"}
    registry.status = 404
    with pytest.raises(SchemaUnavailableError, match="is a schema registry"):
        RegistryClient(registry.url).by_id(1)


def test_a_registry_that_is_down_is_named_and_the_next_is_asked(registry: StubRegistry) -> None:
    down = StubRegistry()
    down.close()
    with pytest.raises(SchemaUnavailableError, match=down.url):
        RegistryClient(down.url).by_id(1)
    number = registry.register("t", "AVRO", '"int"')
    assert RegistryClient(f"{down.url},{registry.url}").by_id(number) is not None


@pytest.mark.parametrize(
    "url, security",
    [
        ("", {}),
        ("ftp://x", {}),
        ("http://", {}),
        ("http://h:port", {}),
        ("http://h", {"basic.auth.credentials.source": "USER_INFO"}),
        ("http://h", {"basic.auth.credentials.source": "SASL_INHERIT"}),
        ("http://h", {"basic.auth.credentials.source": "HOPE"}),
        ("http://h", {"bearer.auth.credentials.source": "STATIC_TOKEN"}),
        ("http://h", {"bearer.auth.credentials.source": "OAUTHBEARER"}),
        ("https://h", {"ssl.truststore.location": "/nowhere.pem"}),
    ],
)
def test_a_wrong_option_is_refused(url: str, security: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        RegistryClient(url, security)


@pytest.mark.parametrize(
    ("url", "security", "what"),
    [
        ("http://ann:secret@registry.example:8081", {}, "password"),
        ("http://10.0.0.1:8081", {"basic.auth.user.info": "ann:secret"}, "password"),
        ("http://registry.example", {"bearer.auth.token": "secret"}, "token"),
    ],
)
def test_no_login_goes_in_clear_to_another_machine(
    url: str, security: dict[str, str], what: str
) -> None:
    with pytest.raises(UsageError, match=f"would get the {what} in clear: use https") as refused:
        RegistryClient(url, security)
    assert "secret" not in str(refused.value)
