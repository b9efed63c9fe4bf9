"""An outage is logged, given to `on_error`, and named in statistics and errors."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import pytest

from headwater import ClosedError, Consumer, KafkaError, KafkaTimeoutError, Producer, TopicPartition
from headwater.client.outages import OutageLog, summary
from headwater.errors import ErrorCode
from headwater.testing.clocks import ManualClock
from headwater.testing.memory_files import MemoryFiles
from unit.client.served_broker import ServedBroker, wait_until

LIMIT_S = 30.0
REPORT_MS = 200
TP = TopicPartition("t", 0)


class Listener:
    """`on_error`: what it was called with, and a wait for the first call."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []
        self.heard = threading.Event()

    def __call__(self, error: KafkaError) -> None:
        self.errors.append(error)
        self.heard.set()
        raise RuntimeError("the caller's own mistake")


def test_an_outage_is_reported_at_growing_intervals_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, errors = ManualClock(), []
    outages = OutageLog(clock, logging.getLogger("t"), errors.append, report_after_s=5)
    reported_at = []
    for second in range(200):
        for partition in ("t-0", "t-1"):
            outages.note(partition, ErrorCode.NETWORK_EXCEPTION, "leader 2 is down", "refused")
        before = len(errors)
        outages.report()
        if len(errors) > before:
            reported_at.append(second)
        clock.advance(1000)
    assert reported_at == [5, 10, 20, 40, 80, 140]
    assert caplog.messages[0] == "t-0, t-1: leader 2 is down for 5 s: refused"
    assert [error.code for error in errors] == [ErrorCode.NETWORK_EXCEPTION] * 6
    assert summary(outages.outages()) == "t-0, t-1: leader 2 is down for 200 s: refused"
    outages.keep({"t-1"})
    assert caplog.messages[-1] == "t-0: works again after 200 s"
    assert [o.subject for o in outages.outages()] == ["t-1"]


def test_a_short_outage_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outages = OutageLog(clock, logging.getLogger("t"), report_after_s=5)
    outages.note("t-0", ErrorCode.NETWORK_EXCEPTION, "leader 2 is down")
    clock.advance(4999)
    outages.report()
    outages.keep(set())
    assert caplog.messages == []


def test_each_cause_has_a_line_that_counts_the_subjects_it_does_not_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    outages = OutageLog(clock, logging.getLogger("t"), report_after_s=1)
    for n in range(7):
        outages.note(f"t-{n}", ErrorCode.LEADER_NOT_AVAILABLE, "no leader", since=-9.0)
    outages.note("u-0", ErrorCode.NETWORK_EXCEPTION, "leader 2 is down", since=-9.0)
    outages.report("flush")
    assert caplog.messages == [
        "flush waits for t-0, t-1, t-2, t-3, t-4 and 2 more: no leader for 9 s",
        "flush waits for u-0: leader 2 is down for 9 s",
    ]


def test_a_producers_outage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    with ServedBroker(tmp_path) as served:
        served.do(lambda broker: broker.create_topic("t"))
        with Producer(served.bootstrap, outage_report_ms=REPORT_MS, on_error=listener) as producer:
            producer.send("t", b"first").result(LIMIT_S)
            served.close_port()
            future = producer.send("t", b"second")
            flushing = threading.Thread(target=producer.flush, args=(LIMIT_S,))
            flushing.start()
            assert listener.heard.wait(LIMIT_S)
            line = r"flush waits for t-0: leader 1 is not reachable for \d+ s: 127\.0\.0\.1:\d+: "
            assert any(re.match(line, m) for m in caplog.messages), caplog.messages
            assert listener.errors[0].code == ErrorCode.NETWORK_EXCEPTION
            (outage,) = producer.statistics().outages
            assert (outage.subject, outage.cause) == ("t-0", "leader 1 is not reachable")
            with pytest.raises(KafkaTimeoutError, match="t-0: leader 1 is not reachable for"):
                producer.flush(0)
            with pytest.raises(KafkaTimeoutError, match="the record for t-0 is not acknowledged"):
                future.result(0)
            served.open_port()
            flushing.join(LIMIT_S)
            assert future.result(0).offset == 1
            wait_until(lambda: not producer.statistics().outages)
    assert any(m.startswith("t-0: works again after") for m in caplog.messages)
    assert "on_error raised" in caplog.messages


def test_a_full_disk_of_the_broker_is_an_outage(tmp_path: Path) -> None:
    """`headwater produce` printed nothing for 45 s."""
    listener, files = Listener(), MemoryFiles()
    served = ServedBroker(tmp_path)
    served.broker.files = files
    with served:
        served.do(lambda broker: broker.create_topic("t"))
        with Producer(served.bootstrap, outage_report_ms=REPORT_MS, on_error=listener) as producer:
            producer.send("t", b"first").result(LIMIT_S)
            files.free_bytes = 0
            future = producer.send("t", b"second")
            assert listener.heard.wait(LIMIT_S)
            shown = str(listener.errors[0])
            assert "t-0" in shown and "no space left" in shown
            producer.close(0)
        assert isinstance(future.exception(LIMIT_S), ClosedError)


def test_a_batch_that_lingers_is_no_outage(tmp_path: Path) -> None:
    listener = Listener()
    with ServedBroker(tmp_path) as served:
        served.do(lambda broker: broker.create_topic("t", 2))
        options = {"outage_report_ms": 20, "linger_ms": 600_000}
        with Producer(served.bootstrap, on_error=listener, **options) as producer:
            producer.send("t", b"lingers", partition=0)
            assert not listener.heard.wait(0.2)
            assert producer.statistics().outages == []


def test_a_batch_that_expires_says_why(tmp_path: Path) -> None:
    with ServedBroker(tmp_path) as served:
        served.do(lambda broker: broker.create_topic("t"))
        with Producer(served.bootstrap, delivery_timeout_ms=400) as producer:
            producer.send("t", b"first").result(LIMIT_S)
            served.close_port()
            error = producer.send("t", b"second").exception(LIMIT_S)
            assert isinstance(error, KafkaTimeoutError)
            text = r"1 records for t-0 not delivered within 0.4 s: leader 1 is not reachable: "
            assert re.search(text, str(error))
            assert producer.statistics().records_failed == 1


def test_a_consumers_outage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    with ServedBroker(tmp_path) as served:
        served.do(lambda broker: broker.create_topic("t"))
        with Consumer(
            bootstrap_servers=served.bootstrap,
            outage_report_ms=REPORT_MS,
            on_error=listener,
            socket_connection_setup_timeout_ms=500,
            fetch_max_wait_ms=10,
        ) as consumer:
            consumer.assign([TP])
            # A connection that is just being accepted would outlive the port.
            wait_until(lambda: consumer.statistics().fetches > 0)
            served.close_port()
            assert listener.heard.wait(LIMIT_S)
            assert any(re.match(r"t-0: broker 1 is not reachable for", m) for m in caplog.messages)
            assert [o.subject for o in consumer.statistics().outages] == ["t-0"]
            served.open_port()
            wait_until(lambda: not consumer.statistics().outages)
    assert any(m.startswith("t-0: works again after") for m in caplog.messages)


def test_a_broker_that_hangs_is_an_outage_of_its_readers(tmp_path: Path) -> None:
    """Its connection is open, and nothing is answered."""
    listener = Listener()
    go = threading.Event()
    with ServedBroker(tmp_path) as served:
        served.do(lambda broker: broker.create_topic("t"))
        with Consumer(
            bootstrap_servers=served.bootstrap,
            outage_report_ms=REPORT_MS,
            on_error=listener,
            fetch_max_wait_ms=10,
        ) as consumer:
            consumer.assign([TP])
            wait_until(lambda: consumer.statistics().fetches > 0)
            hanging = threading.Thread(target=served.do, args=(lambda _: go.wait(LIMIT_S),))
            hanging.start()
            try:
                assert listener.heard.wait(LIMIT_S)
                assert "no response from broker 1" in str(listener.errors[0])
            finally:
                go.set()
                hanging.join(LIMIT_S)
