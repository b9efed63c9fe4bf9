"""Every anomaly is planted and survived, in each transaction version that can have it."""

from __future__ import annotations

import pytest

from sim.anomalies import ANOMALIES, Anomaly
from sim.epoch_anomalies import EPOCH_ANOMALIES
from sim.group_anomalies import GROUP_ANOMALIES
from sim.member_anomalies import MEMBER_ANOMALIES
from sim.scripted import script_plan, scripted
from sim.topic_anomalies import TOPIC_ANOMALIES
from sim.world import run

SEEDS = range(1)
EVERY = (*ANOMALIES, *GROUP_ANOMALIES, *TOPIC_ANOMALIES, *EPOCH_ANOMALIES, *MEMBER_ANOMALIES)
PLAYED = [
    pytest.param(a, version, marks=() if version == a.versions[-1] else pytest.mark.long)
    for a in EVERY
    for version in a.versions
]
"""In `make test` the newest transaction version that can have it."""


@pytest.mark.parametrize(
    ("anomaly", "version"), PLAYED, ids=lambda value: getattr(value, "number", f"TV{value}")
)
def test_the_anomaly_is_survived(anomaly: Anomaly, version: int) -> None:
    for seed in SEEDS:
        kind, plan = scripted(anomaly.play, version), script_plan(**anomaly.properties)
        outcome = run(seed, plan=plan, kind=kind, tells=True)
        story = "\n".join((str(outcome.violation), *outcome.log[-60:]))
        assert outcome.violation is None, story
