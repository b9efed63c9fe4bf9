"""The seam of the flows: figures, sites, the schedule, the ledger."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from city.clock import CityClock
from city.flows import Figure, Schedule, Site
from city.ledger import Ledger
from city.report import differences, proof_table
from headwater.testing.clocks import ManualClock


def test_figures_compare_with_the_truth_or_a_bound() -> None:
    same = Figure.same("f", "rows", 1200, 1200)
    assert (same.oracle, same.found, same.equal) == ("1,200", "1,200", True)
    assert not Figure.same("f", "rows", 1200, 1199).equal
    late = Figure.at_most("f", "p99", 1.0, 1.5, "s")
    assert (late.oracle, late.found, late.equal) == ("<= 1 s", "1.5 s", False)
    assert differences([same, late]) == ["f, p99: <= 1 s expected, 1.5 s found"]
    assert proof_table([same, late]).row_count == 2


def test_a_table_exists_from_its_first_commit_on(tmp_path: Path) -> None:
    site = Site("A", "localhost:1", tmp_path / "tables")
    log = Path(site.table("faces"), "_delta_log")
    log.mkdir(parents=True)
    assert not site.has_table("faces")
    (log / f"{0:020}.json").touch()
    assert site.has_table("faces")
    assert site.checkpoint("q") == str(tmp_path / "checkpoints-A" / "q")


def test_events_run_when_their_time_has_come_and_errors_are_named() -> None:
    clock = ManualClock()
    city = CityClock.starting(clock, 24.0)
    clock.advance(24_000)
    schedule = Schedule(city, threading.Event())
    done: list[str] = []
    schedule.at(21.0, "kill", lambda: done.append("kill"))
    schedule.at(3.0, "leaf", lambda: done.append(str(1 // 0)))
    schedule.start()
    assert schedule.join() == [
        "leaf: ZeroDivisionError('integer division or modulo by zero')",
        "leaf did not happen",
    ]
    assert done == ["kill"]


def test_events_after_the_end_do_not_happen() -> None:
    stopping = threading.Event()
    stopping.set()
    schedule = Schedule(CityClock.starting(ManualClock(), 24.0), stopping)
    schedule.at(21.0, "kill", lambda: None)
    schedule.start()
    assert schedule.join() == ["kill did not happen"]


def test_the_ledger_keeps_the_first_sending() -> None:
    ledger = Ledger({"vehicles": 4, "faces": 2})
    ledger.note_sent("vehicles", np.array([0, 1]), 100.0)
    ledger.note_sent("vehicles", np.array([1, 2]), 200.0)
    ledger.note_acked("vehicles", np.array([0, 2]))
    assert ledger.real_sent_ms("vehicles").tolist()[:3] == [100.0, 100.0, 200.0]
    assert np.isnan(ledger.real_sent_ms("vehicles")[3])
    assert (ledger.sent_count, ledger.acked_count, ledger.total) == (3, 2, 6)
