"""A client in a forked process says so, instead of waiting for a thread that is not there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater import Admin, Consumer, IllegalStateError, NewTopic, Producer
from whole_cluster import ServedCluster

LIMIT_S = 20


def forked(work: Callable[[], object]) -> int:
    """Run `work` in a fork: 0 if it raised IllegalStateError that names the remedy."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(LIMIT_S)
    code = 1
    try:
        work()
    except IllegalStateError as error:
        code = 0 if "make one in each process" in str(error) else 2
    finally:
        os._exit(code)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_client_refuses(tmp_path: Path) -> None:
    with (
        ServedCluster(tmp_path, 1) as cluster, Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap) as producer,
        Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g",
                 allow_auto_create_topics=True) as consumer,
    ):  # fmt: skip
        admin.create_topics([NewTopic("known", 1, 1)])
        producer.send("known", b"v").result(LIMIT_S)
        assert forked(admin.list_topics) == 0
        assert forked(lambda: producer.send("known", b"v")) == 0
        assert forked(producer.close) == 0
        assert forked(lambda: consumer.partitions_for("known")) == 0
        assert admin.list_topics(), "the process that forked goes on"
