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


def refuses(work: Callable[[], object]) -> bool:
    """True if `work`, in a fork, raises IllegalStateError that names the remedy. The fork ends by a
    signal: it must not run the end of the test's process."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    signal.alarm(LIMIT_S)
    end = signal.SIGTERM
    try:
        work()
    except IllegalStateError as error:
        end = signal.SIGKILL if "make one in each process" in str(error) else end
    finally:
        os.kill(os.getpid(), end)
    return False


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
        assert refuses(admin.list_topics)
        assert refuses(lambda: producer.send("known", b"v"))
        assert refuses(producer.close)
        assert refuses(lambda: consumer.partitions_for("known"))
        assert admin.list_topics(), "the process that forked goes on"
