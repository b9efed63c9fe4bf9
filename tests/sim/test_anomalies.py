"""Every anomaly is planted and survived, in each transaction version that can have it."""

from __future__ import annotations

import pytest

from sim.anomalies import ANOMALIES, Anomaly
from sim.group_anomalies import GROUP_ANOMALIES
from sim.scripted import scripted
from sim.world import run

SEEDS = range(1)
PLAYED = [(a, version) for a in (*ANOMALIES, *GROUP_ANOMALIES) for version in a.versions]


@pytest.mark.parametrize(
    ("anomaly", "version"), PLAYED, ids=lambda value: getattr(value, "number", f"TV{value}")
)
def test_the_anomaly_is_survived(anomaly: Anomaly, version: int) -> None:
    for seed in SEEDS:
        outcome = run(seed, kind=scripted(anomaly.play, version), tells=True)
        story = "\n".join((str(outcome.violation), *outcome.log[-60:]))
        assert outcome.violation is None, story
