"""The claims that a day of the city shows: figures of its last proof, and none without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from claims_of_city import NOT_RUN, SHOWN, rows_of_city

from city.flows import Figure
from city.report import write_proof


def proof(path: Path, *, without: int = -1) -> Path:
    """A proof with all figures that claims need, or without one of them."""
    needed = [row for one in SHOWN for row in one.figures]
    figures = [
        Figure(flow, f"{name} (7 points)", "", f"found {number}", True)
        for number, (flow, name) in enumerate(needed)
        if number != without
    ]
    write_proof(path / "proof.json", figures, 421.4)
    return path / "proof.json"


def test_each_claim_has_the_figures_of_the_last_run(tmp_path: Path) -> None:
    rows = rows_of_city(proof(tmp_path))
    assert [row[0] for row in rows] == [one.claim for one in SHOWN]
    assert rows[0][2] == "vehicles: stored (7 points): found 0; faces: stored (7 points): found 1"
    assert json.loads((tmp_path / "proof.json").read_text())["took_s"] == 421


def test_without_a_run_that_is_said(tmp_path: Path) -> None:
    assert {row[2] for row in rows_of_city(tmp_path / "proof.json")} == {NOT_RUN}


def test_a_figure_that_is_gone_is_no_empty_cell(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no figure 'vehicles: stored' of 'rows'"):
        rows_of_city(proof(tmp_path, without=0))
