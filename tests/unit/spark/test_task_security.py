"""Security options of Spark: references travel to tasks, secrets do not."""

from __future__ import annotations

import pickle

import pytest

from headwater.errors import UsageError
from headwater_spark.sink.sink_options import sink_options
from headwater_spark.source.source_options import source_options
from headwater_spark.task_security import task_security

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
