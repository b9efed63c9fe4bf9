"""A worker that reads, writes results and dies before it has stored its position."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import Consumer, Producer
from whole_cluster import ServedCluster

INPUTS = [b"0", b"1", b"2"]


class CrashError(Exception):
    """The worker dies: results are written, the position is not."""


def work(c: ServedCluster, *, transactional_id: str | None, crashes: bool) -> None:
    """From the group's position on: a result for each input, then the position."""
    with (
        Producer(c.bootstrap, transactional_id=transactional_id) as producer,
        Consumer(
            "inputs",
            bootstrap_servers=c.bootstrap,
            group_id="workers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        if transactional_id is not None:
            producer.begin_transaction()
        for value in take(consumer, len(INPUTS)):
            producer.send("results", value)
        producer.flush()
        if crashes:
            raise CrashError
        if transactional_id is None:
            consumer.commit()
        else:
            producer.send_offsets(None, consumer)
            producer.commit_transaction()


def take(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count and (found := consumer.poll(5000)):
        values += [r.value for rows in found.values() for r in rows]
    return values


@pytest.mark.parametrize(("transactional_id", "copies"), [(None, 2), ("worker", 1)])
def test_only_a_transaction_keeps_a_restart_from_repeating_results(
    tmp_path: Path, transactional_id: str | None, copies: int
) -> None:
    with ServedCluster(tmp_path, 1) as c:
        with Producer(c.bootstrap) as producer:
            for value in INPUTS:
                producer.send("inputs", value)
        with pytest.raises(CrashError):
            work(c, transactional_id=transactional_id, crashes=True)
        work(c, transactional_id=transactional_id, crashes=False)
        with Consumer(
            "results",
            bootstrap_servers=c.bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=1500,
        ) as consumer:
            found = sorted(record.value or b"" for record in consumer)
    assert found == sorted(INPUTS * copies)
