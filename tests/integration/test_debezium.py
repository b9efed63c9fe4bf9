"""A change in a real Postgres becomes a row, by Kafka Connect and Debezium as they are."""

from __future__ import annotations

import io
import json
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater import Admin
from headwater.cli.main import main
from headwater.client.admin.client import LATEST
from headwater.client.values import NewTopic, TopicPartition
from integration.conftest import Start, next_base_port
from suites import parts
from suites.debezium import Postgres, postgres_connector
from suites.kafka_connect import Connect
from suites.parts import MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(300)]
TOPIC = "shop.public.orders"
LAST = {(TOPIC, 0): LATEST}
WAIT_S = 90.0
LARGE = 9_000
"""Characters that Postgres keeps outside the row, so that an update does not send them."""
TABLE = f"""
create table orders (id int primary key, name text, amount numeric(10, 2), at timestamp, note text);
alter table orders alter note set storage external;
insert into orders values (1, 'ann', 12.34, '2024-05-06 07:08:09', repeat('x', {LARGE}));
insert into orders values (2, 'bob', 0.10, null, 'short');
"""


@pytest.fixture(autouse=True)
def parts_are_there() -> None:
    try:
        parts.debezium_jars()
        parts.postgres_programs()
    except MissingPartError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("with_schemas", [True, False], ids=["schemas", "plain"])
def test_changes_in_postgres_are_rows(
    start_cluster: Start, tmp_path: Path, with_schemas: bool
) -> None:
    servers = start_cluster(brokers=1).bootstrap
    configs = {
        "remote.storage.enable": "true",
        "headwater.value.format": "json",
        "headwater.value.envelope": "debezium",
        "headwater.key.format": "json",
        "headwater.latest.enable": "true",
        "headwater.latest.interval.ms": "1",
    }
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1, configs=configs)])
    settings = {}
    for part in ("key", "value"):
        settings[f"{part}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
        settings[f"{part}.converter.schemas.enable"] = str(with_schemas).lower()
    port = next_base_port(tmp_path)
    with Postgres(port) as postgres:
        postgres.run(TABLE)
        connector = postgres_connector(postgres, "shop", "public.orders")
        folder, jars = tmp_path / "connect", parts.debezium_jars()
        with Connect(folder, jars, servers, port + 1, [connector], settings) as connect:
            wait_for_records(servers, 2, connect)
            assert [row["name"] for row in latest(servers)] == ["ann", "bob"]
            postgres.run("update orders set name = 'anna' where id = 1")
            postgres.run("delete from orders where id = 2")
            postgres.run("insert into orders values (3, 'cid', 99.99, null, null)")
            wait_for_records(servers, 6, connect)  # a delete is followed by a tombstone
    rows = latest(servers)
    assert [(row["id"], row["name"]) for row in rows] == [(1, "anna"), (3, "cid")]
    assert rows[0]["note"] == "x" * LARGE
    if with_schemas:
        assert str(rows[0]["amount"]) == "12.34"
        assert rows[0]["at"].isoformat() == "2024-05-06T07:08:09+00:00"
    state = tier_json(servers, "typed", TOPIC)
    assert (state["rows"], state["quarantined"], state["behind"]) == (6, 0, 0)


def wait_for_records(servers: str, count: int, connect: Connect) -> None:
    """Until the topic has this many records."""
    ends = time.monotonic() + WAIT_S
    with Admin(servers) as admin:
        while (end := admin.list_offsets(LAST)[TopicPartition(TOPIC, 0)].offset) < count:
            assert time.monotonic() < ends, f"{end} records\n{connect.told()}"
            time.sleep(0.2)


def latest(servers: str) -> list[dict[str, Any]]:
    """The rows of the table of latest rows, after all records were tiered and followed."""
    command("serve", "--once", "--bootstrap-server", servers)
    state = tier_json(servers, "typed", TOPIC, "--follow")
    uri = state["uri"].replace("_typed-", "_latest-")
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def tier_json(servers: str, *arguments: str) -> Any:
    """The JSON of a `headwater tier` command."""
    return json.loads(command(*arguments, "--bootstrap-server", servers, "--json"))


def command(*arguments: str) -> str:
    """The output of a `headwater tier` command."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["tier", *arguments]) == 0
    return out.getvalue()
