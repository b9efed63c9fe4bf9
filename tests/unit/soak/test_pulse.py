"""A main thread that hangs is told from one that runs and from one that has ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from soak import pulse
from soak.pulse import Pulse, StoodStillError, closing, with_pulse


class FakeConsumer:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]

    def monotonic() -> float:
        now[0] += 1e-6  # no two looks are at the same time
        return now[0]

    monkeypatch.setattr(pulse.time, "monotonic", monotonic)
    monkeypatch.setattr(pulse.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    return now


def task(folder: Path, thread: str, switches: int) -> None:
    (folder / thread).mkdir(exist_ok=True)
    (folder / thread / "comm").write_text("rdk:main\n")
    text = f"Name:\trdk:main\nvoluntary_ctxt_switches:\t{switches}\n"
    (folder / thread / "status").write_text(text + "nonvoluntary_ctxt_switches:\t3\n")


def test_a_thread_that_runs_never_stands_still(tmp_path: Path, clock: list[float]) -> None:
    task(tmp_path, "7", 1)
    watched = Pulse({"7"}, tmp_path)
    for n in range(100):
        clock[0] += 1
        task(tmp_path, "7", n + 2)
        watched.check()


def test_one_that_stopped_is_told_after_a_while(tmp_path: Path, clock: list[float]) -> None:
    task(tmp_path, "7", 1)
    task(tmp_path, "8", 1)
    watched = Pulse({"7", "8"}, tmp_path)
    for n in range(29):
        clock[0] += 1
        task(tmp_path, "8", n + 2)
        watched.check()
    clock[0] += 1
    with pytest.raises(StoodStillError, match="30 s"):
        watched.check()


def test_one_that_ended_is_not_at_fault(tmp_path: Path, clock: list[float]) -> None:
    task(tmp_path, "7", 1)
    watched = Pulse({"7"}, tmp_path)
    shutil.rmtree(tmp_path / "7")
    for _ in range(100):
        clock[0] += 1
        watched.check()


def test_asked_once_it_waits_until_it_knows(tmp_path: Path, clock: list[float]) -> None:
    task(tmp_path, "7", 1)
    watched = Pulse({"7"}, tmp_path)
    clock[0] += 500
    task(tmp_path, "7", 2)
    assert watched.has_stopped() and clock[0] >= 630
    shutil.rmtree(tmp_path / "7")
    assert not watched.has_stopped()


def test_a_client_that_stands_still_is_not_closed() -> None:
    consumer = FakeConsumer()
    with pytest.raises(StoodStillError), closing(consumer):  # type: ignore[arg-type]
        raise StoodStillError
    assert consumer.closed == 0
    with pytest.raises(OSError), closing(consumer):  # type: ignore[arg-type]
        raise OSError
    with closing(consumer):  # type: ignore[arg-type]
        pass
    assert consumer.closed == 2


def test_the_main_thread_of_a_real_client_is_found_and_runs() -> None:
    consumer, watched = with_pulse(
        lambda: Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    )
    assert watched._threads
    assert not watched.has_stopped()
    consumer.close()
    assert not watched._look()
