"""Spark on a secure cluster: its source, its sink, and no secret in what Spark keeps.

The cluster is that of `headwater up --secure`; Spark logs in as a user with the least rights.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headwater import Admin, Producer
from headwater.client.admin.scram import ScramUpsertion
from headwater.client.values import NewTopic
from headwater.config.java_properties import read_java_properties
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.secure_cluster import client_properties_of
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, PatternType, PermissionType
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.spark_sessions import spark_session

pytestmark = pytest.mark.integration

PASSWORD = "blue-Horse-9"
ROWS = 60
PARTITIONS = 2
BROKERS = 2
WAIT_S = 60
SECURE_SPEC = functools.partial(ClusterSpec, secure=True)


@dataclass(frozen=True)
class Secured:
    """The cluster, a session whose event log is in `folder`, and the options of its user."""

    cluster: LocalCluster
    spark: Any
    folder: Path
    admin: dict[str, Any]
    options: dict[str, str]

    def reader(self, reader: Any, topic: str) -> DataFrame:
        found: DataFrame = (
            reader.format("headwater")
            .options(**self.options)
            .options(subscribe=topic, startingOffsets="earliest")
            .option("kafka.isolation.level", "read_committed")
            .load()
            .select("value")
        )
        return found

    def with_tokens(self) -> Secured:
        """Tasks log in with a delegation token."""
        return replace(self, options={**self.options, "headwater.delegation.token": "true"})

    def values(self, topic: str) -> list[int]:
        rows = self.reader(self.spark.read, topic).collect()
        return sorted(int(bytes(row.value)) for row in rows)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    (folder / "events").mkdir()
    (folder / "password").write_text(PASSWORD + "\n")
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder}/events",
    }
    directory = folder / "cluster"
    with LocalCluster(directory, next_base_port(folder), BROKERS, kind=SECURE_SPEC) as cluster:
        admin = login_of(directory)
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": "spark",
            "kafka.sasl.password": f"file:{folder}/password",
            "kafka.ssl.truststore.location": admin["ssl_truststore_location"],
        }
        prepare(cluster.bootstrap, admin)
        with spark_session("local[2]", delta=False, conf=conf) as spark:
            yield Secured(cluster, spark, folder, admin, options)
        # Spark writes the end of its event log when it stops.
        with Admin(cluster.bootstrap, **admin) as client:
            tokens = client.describe_delegation_tokens(["User:spark"])
        assert len(tokens) == 1, "the processes of a driver share one"
        assert files_with("headwater", folder / "events"), "the search finds what there is"
        for secret in (PASSWORD, tokens[0].password):
            assert files_with(secret, folder / "events") == []


def login_of(directory: Path) -> dict[str, Any]:
    """The admin's login as keywords of the SDK."""
    file = client_properties_of(directory)
    assert file is not None
    rows = read_java_properties(str(file), "client.properties")
    return {name.replace(".", "_"): text for name, text in rows.items()}


def allow(resource: ResourceType, prefix: str, operation: Operation) -> AclBinding:
    return AclBinding(
        resource, prefix, PatternType.PREFIXED, "User:spark", "*", operation, PermissionType.ALLOW
    )


def prepare(bootstrap: str, login: dict[str, Any]) -> None:
    """The topics, Spark's user and its rights; records in the first topic."""
    with Admin(bootstrap, **login) as admin:
        admin.create_topics(
            [NewTopic(f"job-{t}", PARTITIONS, BROKERS) for t in ("in", "out", "batch")]
        )
        admin.create_topics([NewTopic("others", 1, BROKERS)])
        admin.alter_user_scram_credentials([ScramUpsertion("spark", PASSWORD)])
        admin.create_acls(
            [
                allow(ResourceType.TOPIC, "job-", Operation.READ),
                allow(ResourceType.TOPIC, "job-", Operation.WRITE),
                allow(ResourceType.TRANSACTIONAL_ID, "__hw.", Operation.WRITE),
            ]
        )
    with Producer(bootstrap, **login) as producer:
        for i in range(ROWS):
            producer.send("job-in", str(i).encode(), partition=i % PARTITIONS)
        producer.flush()


def explained(frame: DataFrame) -> str:
    """What `explain(extended=True)` prints."""
    with redirect_stdout(io.StringIO()) as text:
        frame.explain(extended=True)
    return text.getvalue()


def files_with(text: str, folder: Path) -> list[Path]:
    return [f for f in folder.rglob("*") if f.is_file() and text.encode() in f.read_bytes()]


@pytest.mark.long
def test_a_query_reads_and_writes_exactly_once_and_spark_keeps_no_secret(secured: Secured) -> None:
    checkpoint = secured.folder / "checkpoint"
    rows = secured.reader(secured.spark.readStream, "job-in")
    writer = rows.writeStream.format("headwater").options(**secured.options)
    writer = writer.option("topic", "job-out").option("checkpointLocation", str(checkpoint))
    for commit in ("", "0"):
        if commit:  # as after a driver that died before Spark logged the commit
            (checkpoint / "commits" / commit).unlink()
            (checkpoint / "commits" / f".{commit}.crc").unlink()
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        assert secured.values("job-out") == list(range(ROWS))
        assert PASSWORD not in str(query.lastProgress)
    assert PASSWORD not in explained(rows)
    assert files_with("job-in", checkpoint), "the search finds what there is"
    assert files_with(PASSWORD, checkpoint) == []


def test_a_batch_is_read_and_written_and_spark_keeps_no_secret(secured: Secured) -> None:
    """Its tasks log in with a delegation token."""
    secured = secured.with_tokens()
    frame = secured.reader(secured.spark.read, "job-in")
    writer = frame.write.format("headwater").options(**secured.options)
    writer.option("topic", "job-batch").mode("append").save()
    assert secured.values("job-batch") == list(range(ROWS))
    text = explained(frame)
    assert "headwater" in text.lower()
    assert PASSWORD not in text
    with Admin(secured.cluster.bootstrap, **secured.admin) as admin:
        (token,) = admin.describe_delegation_tokens(["User:spark"])
    assert token.password not in text


def test_a_topic_without_the_right_is_refused(secured: Secured) -> None:
    with pytest.raises(PySparkException, match="TOPIC_AUTHORIZATION_FAILED"):
        secured.reader(secured.spark.read, "others").collect()
