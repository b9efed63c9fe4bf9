"""Union read: how soon after its acknowledgement a record is in a read of table and tail."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from peers import HeadwaterPeer
from tiering_cold import fill, make_cold

import headwater_spark
from headwater import Producer
from headwater_spark.spark_session import session

ROWS = 100_000
READS = 20
WARM_UP = 3


def bench_union(headwater: HeadwaterPeer) -> dict[str, Any]:
    """Seconds from the ack until the read's bounds have the record, which every read must have."""
    topic = "union"
    fill(headwater, topic, ROWS)
    make_cold(headwater, {topic: ROWS})
    spark = session("local[2]")
    bounded, whole = [], []
    with Producer(headwater.bootstrap, linger_ms=0) as producer:
        for number in range(READS + WARM_UP):
            offset = producer.send(topic, b"%d" % number).result(60).offset
            acked = time.monotonic()
            frame = headwater_spark.table(spark, topic, bootstrap_servers=headwater.bootstrap)
            bounded.append(time.monotonic() - acked)
            rows = frame.where(f"offset >= {offset}").count()
            whole.append(time.monotonic() - acked)
            if rows != 1:
                raise RuntimeError(f"{rows} rows from offset {offset} on: 1 was acknowledged")
    spark.stop()
    bounded, whole = bounded[WARM_UP:], whole[WARM_UP:]
    return {
        "work": "ack until a union read is bound to see the record, p95 ms",
        "found": round(1000 * float(np.percentile(bounded, 95))),
        "bar": 200,
        "more": f"p50 {1000 * statistics.median(bounded):.0f}; rows at hand after"
        f" {1000 * statistics.median(whole):.0f} ms, none of {READS} missed",
    }
