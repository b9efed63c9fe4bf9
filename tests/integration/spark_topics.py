"""A topic of one Spark test, and what tests do with it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

import headwater_spark
from headwater import Producer
from headwater.system import SystemClock
from headwater_spark.tiering.command import drain
from headwater_spark.tiering.job import Round, TopicTier

WAIT_S = 60


class Topic:
    """A topic of one test, and operations on it."""

    def __init__(self, spark: Any, servers: str, name: str) -> None:
        self.spark = spark
        self.servers = servers
        self.name = name

    def produce(self, start: int, end: int) -> None:
        """Values v<start> .. v<end - 1>, keys by number, every tenth without, some headers."""
        with Producer(self.servers) as producer:
            for i in range(start, end):
                headers = [("h", b"1"), ("h", None)] if i % 5 == 0 else None
                key = None if i % 10 == 0 else str(i).encode()
                last = producer.send(self.name, b"v%d" % i, key=key, headers=headers)
            producer.flush()
            last.result(WAIT_S)

    def read(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("headwater").option("subscribe", self.name)
        return reader.option("kafka.bootstrap.servers", self.servers).options(**options).load()

    def stream(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("headwater").option("subscribe", self.name)
        return reader.option("bootstrap.servers", self.servers).options(**options).load()

    def table(self) -> DataFrame:
        return headwater_spark.table(
            self.spark, self.name, bootstrap_servers=self.servers, include_headers=True
        )

    def tier(self) -> list[Round]:
        tier = TopicTier(self.spark, self.name, self.servers, SystemClock())
        tier.enable()
        rounds: list[Round] = []
        drain(tier, rounds.append)
        tier.close()
        return rounds


def values(rows: DataFrame) -> list[str]:
    return sorted(bytes(r.value).decode() for r in rows.select("value").collect())


def expected(start: int, end: int) -> list[str]:
    return sorted(f"v{i}" for i in range(start, end))
