"""A REST gateway asked by kafka-mcp, a client that others wrote for Confluent's proxy.

    python rest_client.py URL TOPIC GROUP

Run by the client's own venv; prints what it read as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from kafka_mcp.api.api_client_kafka import KafkaApi

RECORDS = 5
LIMIT_S = 30


def main(url: str, topic: str, group: str) -> None:
    """Every call of the client, but ACLs."""
    api = KafkaApi(url)
    api.create_topic(topic, partitions_count=2, configs={"retention.ms": "600000"})
    api.update_topic_config(topic, "retention.ms", 500_000)
    api.update_topic_configs(topic, {"max.message.bytes": 500_000})
    configs = {row["name"]: row["value"] for row in api.list_topic_configs(topic)["data"]}
    reports = [api.produce_record(topic, {"n": n}, key=n) for n in range(RECORDS)]
    instance = api.create_consumer(group, "one")["instance_id"]
    api.subscribe_consumer(group, instance, [topic])
    rows: list[dict[str, int]] = []
    deadline = time.monotonic() + LIMIT_S
    while len(rows) < RECORDS and time.monotonic() < deadline:
        rows += [row["value"] for row in api.consume_records(group, instance)]
    api.commit_offsets(group, instance)
    found = {
        "values": sorted(row["n"] for row in rows),
        "codes": sorted({row["error_code"] for row in reports}),
        "retention": configs["retention.ms"],
        "bytes": configs["max.message.bytes"],
        "topics": topic in [row["topic_name"] for row in api.list_topics()["data"]],
        "partitions": len(api.list_partitions(topic)["data"]),
        "leader": api.get_partition(topic, 1)["leader"] is not None,
        "groups": group in [r["consumer_group_id"] for r in api.list_consumer_groups()["data"]],
        "state": api.get_consumer_group(group)["state"],
        "members": len(api.list_consumers(group)["data"]),
        "lag": api.get_group_lag_summary(group)["total_lag"],
        "lags": len(api.get_group_lags(group)["data"]),
        "brokers": len(api.list_brokers()["data"]),
        "broker": bool(api.list_broker_configs(api.list_brokers()["data"][0]["broker_id"])["data"]),
    }
    api.delete_consumer(group, instance)
    api.delete_topic(topic)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
