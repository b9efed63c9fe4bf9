"""Claims that a day of the city shows: their figures, from the proof of its last run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

NOT_RUN = "not run here"


class Shown(NamedTuple):
    """A claim, and the rows of the proof that measure it: (flow, beginning of the name)."""

    claim: str
    rows: str
    figures: Sequence[tuple[str, str]]
    command: str = "`make city`"


MIRROR_TEST = "`pytest tests/integration/test_mirror_failover.py`"
SHOWN = (
    Shown(
        "own offsets stored after the rows: no loss at ingest",
        "B3-444",
        (("rows", "vehicles: stored"), ("rows", "faces: stored")),
    ),
    Shown(
        "watch-list in less than a second, by micro-batch some seconds",
        "B3-445",
        (("watch-list", "sent to reported, p99, per event"),
         ("watch-list", "sent to reported, p99, micro-batches")),
    ),
    Shown(
        "nearly no ingest delay but in rush hours",
        "B3-447",
        (("latency monitor", "mean by hour"), ("latency monitor", "sent to stored, p99")),
    ),
    Shown(
        "the mirrored site loses nothing that was mirrored",
        "B3-446",
        (("disaster recovery", "acknowledged at site A"),
         ("disaster recovery", "vehicles at site B"), ("disaster recovery", "faces at site B")),
        f"`make city`, {MIRROR_TEST}",
    ),
)  # fmt: skip


def rows_of_city(proof: Path) -> list[tuple[str, str, str, str]]:
    """(claim, statement, figure, command) of each; `proof`: proof.json of a run, if there is one.

    Raises LookupError for a proof without a figure that a claim needs.
    """
    found: list[dict[str, str]] | None = None
    if proof.is_file():
        found = json.loads(proof.read_text(encoding="utf-8"))["figures"]
    return [
        (one.claim, one.rows, NOT_RUN if found is None else _figure(one, found), one.command)
        for one in SHOWN
    ]


def _figure(one: Shown, found: list[dict[str, str]]) -> str:
    texts = []
    for flow, name in one.figures:
        rows = [row for row in found if row["flow"] == flow and row["name"].startswith(name)]
        if not rows:
            raise LookupError(f"the city's proof has no figure {name!r} of {flow!r}")
        texts += [f"{row['name']}: {row['found']}" for row in rows]
    return "; ".join(texts)
