"""Credentials from Kafka's client keys: references, errors with a remedy, no secret shown."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from headwater import OptionError, Producer
from headwater.client.option_rules import checked
from headwater.client.producer_options import ProducerOptions
from headwater.client.security_options import SECURITY_OPTIONS, security_keywords
from headwater.errors import UsageError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.security.client_keys import CLIENT_KEYS
from headwater.security.client_security import credentials_of
from headwater.security.secret import resolved

SECRET = "blue-Horse-9"
PLAIN_LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": SECRET,
}
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required "
WRONG = [
    ({"sasl.mechanim": "PLAIN"}, "did you mean sasl.mechanism?"),
    ({"sasl.mechanisms": "PLAIN"}, "did you mean sasl.mechanism?"),
    ({"ssl.ca.location": "/ca.pem"}, "did you mean ssl.truststore.location?"),
    ({"security.protocol": "TLS"}, "security.protocol is 'TLS': use one of PLAINTEXT, SSL"),
    ({"sasl.mechanism": "PLAIN"}, "set security.protocol=SASL_SSL"),
    ({"ssl.truststore.location": "/ca.pem"}, "set security.protocol=SSL"),
    ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism is not set: set it to one of PLAIN"),
    ({**PLAIN_LOGIN, "sasl.mechanism": ""}, "set it to SCRAM-SHA-512"),
    ({**PLAIN_LOGIN, "sasl.mechanism": "CRAM-MD5"}, "sasl.mechanism is 'CRAM-MD5': use one of"),
    ({**PLAIN_LOGIN, "sasl.password": ""}, "PLAIN needs a password: set sasl.password"),
    ({**PLAIN_LOGIN, "sasl.jaas.config": SCRAM_JAAS + ";"}, "which needs PlainLoginModule"),
    ({**PLAIN_LOGIN, "sasl.jaas.config": "com.evil.JndiLoginModule required;"}, "is not known"),
    ({**PLAIN_LOGIN, "sasl.password": "env:HEADWATER_NO_SUCH"}, "export it before"),
    ({**PLAIN_LOGIN, "sasl.password": "file:/no/such/file"}, "which cannot be read"),
    ({**PLAIN_LOGIN, "sasl.password": "databricks:scope"}, "write databricks:SCOPE/KEY"),
    ({**PLAIN_LOGIN, "sasl.password": "databricks:a/b"}, "no Databricks runtime: use env:NAME"),
]


@pytest.mark.parametrize(("properties", "remedy"), WRONG)
def test_an_error_names_the_option_and_the_remedy(properties: dict[str, str], remedy: str) -> None:
    with pytest.raises(UsageError) as error:
        credentials_of(properties)
    assert remedy in str(error.value)
    assert SECRET not in str(error.value)


def plain_message(credentials: Credentials) -> bytes | None:
    exchange = credentials.sasl("broker")
    assert exchange is not None
    return exchange.step(b"")


def test_a_client_without_security_options_has_no_credentials() -> None:
    assert credentials_of({"bootstrap.servers": "a:1"}) is NO_CREDENTIALS
    assert credentials_of({"security.protocol": "PLAINTEXT"}) is NO_CREDENTIALS


def test_a_secret_is_read_from_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(SECRET + "\n")
    monkeypatch.setenv("HEADWATER_TEST_PASSWORD", SECRET)
    for reference in (SECRET, "env:HEADWATER_TEST_PASSWORD", f"file:{tmp_path}/password"):
        found = credentials_of({**PLAIN_LOGIN, "sasl.password": reference})
        assert plain_message(found) == f"\0alice\0{SECRET}".encode()


def test_a_reference_stands_within_a_jaas_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_TEST_PASSWORD", SECRET)
    line = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="env:HEADWATER_TEST_PASSWORD";'
    )
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    found = credentials_of({**properties, "sasl.jaas.config": line})
    assert plain_message(found) == f"\0alice\0{SECRET}".encode()


def test_a_databricks_scope_is_read_by_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ModuleType("databricks.sdk.runtime")
    secrets = SimpleNamespace(get=lambda scope, key: f"{scope} and {key}")
    runtime.dbutils = SimpleNamespace(secrets=secrets)  # type: ignore[attr-defined]
    for name in ("databricks", "databricks.sdk"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)
    assert resolved("sasl.password", "databricks:kafka/writer") == "kafka and writer"


def test_a_token_logs_in_by_scram_with_the_extension() -> None:
    line = SCRAM_JAAS + f'username="token-1" password="{SECRET}" tokenauth="true";'
    found = credentials_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": line,
        }
    )
    first = plain_message(found)
    assert first is not None and first.startswith(b"n,,n=token-1,r=")
    assert first.endswith(b",tokenauth=true")
    assert repr(found) == "<credentials: SASL_PLAINTEXT, SCRAM-SHA-512, token token-1>"


def test_credentials_show_no_secret_and_are_not_pickled() -> None:
    found = credentials_of(PLAIN_LOGIN)
    assert SECRET not in repr(found)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(found)


def test_the_sdk_has_each_of_the_keys_with_underscores() -> None:
    assert {key.name.replace(".", "_") for key in CLIENT_KEYS} == set(SECURITY_OPTIONS)


def test_a_misspelt_security_option_of_the_sdk_suggests_the_nearest() -> None:
    with pytest.raises(OptionError, match="did you mean 'sasl_mechanism'"):
        Producer("127.0.0.1:1", sasl_mechanim="PLAIN")  # type: ignore[call-arg]


def test_the_options_of_a_producer_hold_credentials_and_no_secret() -> None:
    keywords = security_keywords(PLAIN_LOGIN)
    defaults = dict(Producer.__init__.__kwdefaults__)
    options = checked(
        "Producer", ProducerOptions, {**defaults, "bootstrap_servers": "a:1"}, keywords
    )
    assert plain_message(options.for_cluster().credentials) == f"\0alice\0{SECRET}".encode()
    assert SECRET not in repr(options)
