"""Security options of Spark: references travel to tasks, secrets do not."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater_spark.sink.sink_options import sink_options
from headwater_spark.source.source_options import source_options
from headwater_spark.task_security import Tokens, client_file_options, task_security

SECRET = "blue-Horse-9"
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="{}";'
)
LOGIN = {
    "kafka.bootstrap.servers": "a:1",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
}


@pytest.mark.parametrize(
    "secret",
    [
        {"kafka.sasl.username": "alice", "kafka.sasl.password": SECRET},
        {"kafka.sasl.jaas.config": JAAS.format(SECRET)},
        {"kafka.sasl.username": "alice", "kafka.sasl.password": "databricks:a/b"},
        {"kafka.ssl.key.password": SECRET},
    ],
)
def test_a_secret_in_an_option_is_refused_with_the_remedy(secret: dict[str, str]) -> None:
    for parsed in (
        lambda: source_options({**LOGIN, **secret, "subscribe": "t"}, streaming=True),
        lambda: sink_options({**LOGIN, **secret}),
    ):
        with pytest.raises(UsageError, match="give env:NAME or file:PATH") as error:
            parsed()
        assert SECRET not in str(error.value)


def test_tasks_follow_the_reference_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**LOGIN, "kafka.sasl.jaas.config": JAAS.format("env:HEADWATER_TEST_PASSWORD")}
    options = sink_options(given)
    shipped = pickle.dumps(options)
    monkeypatch.setenv("HEADWATER_TEST_PASSWORD", SECRET)
    credentials = pickle.loads(shipped).security.credentials()
    assert repr(credentials) == "<credentials: SASL_PLAINTEXT, SCRAM-SHA-512, user alice>"
    assert "alice" not in repr(options)
    monkeypatch.delenv("HEADWATER_TEST_PASSWORD")
    with pytest.raises(UsageError, match="has no variable 'HEADWATER_TEST_PASSWORD'"):
        pickle.loads(shipped).security.credentials()


def test_a_misspelt_option_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"did you mean sasl\.mechanism\?"):
        task_security({"kafka.sasl.mechanim": "PLAIN"})


@pytest.fixture
def client_file(tmp_path: Path) -> Path:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={JAAS.format(SECRET)}\nssl.truststore.location={tmp_path}/ca.pem\n"
    )
    return path


def test_an_option_names_the_clients_file_and_plans_have_its_name_alone(client_file: Path) -> None:
    options = sink_options(
        {"kafka.bootstrap.servers": "a:1", "headwater.client.properties": str(client_file)}
    )
    assert SECRET.encode() not in pickle.dumps(options)
    security = options.security
    assert security.uses_sasl and security.user == "alice"
    assert security.tokens is Tokens.IF_GIVEN


def test_tasks_with_a_token_need_no_file(client_file: Path) -> None:
    security = task_security({"headwater.client.properties": str(client_file)})
    found = security.with_token("id", "hmac").found()
    assert found["ssl.truststore.certificates"].startswith("-----BEGIN CERTIFICATE")
    assert "ssl.truststore.location" not in found
    assert 'username="id"' in found["sasl.jaas.config"]
    assert SECRET not in str(found)


def test_a_file_of_references_is_not_needed_by_tasks(client_file: Path) -> None:
    assert client_file_options(str(client_file)) == {
        "headwater.client.properties": str(client_file)
    }
    client_file.write_text(client_file.read_text().replace(SECRET, "env:HEADWATER_TEST_PASSWORD"))
    found = client_file_options(str(client_file))
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert "headwater.client.properties" not in found
    assert client_file_options(None) == {}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    security = task_security({"headwater.client.properties": str(tmp_path / "none")})
    with pytest.raises(UsageError, match=r"headwater\.client\.properties .*none.* cannot be read"):
        security.credentials()
