"""The control plane answers while the data plane is full: raw produce frames, flat out."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import raw_frames
from peers import HeadwaterPeer

from blocking_control import ControlClient
from integration.conftest import Start

pytestmark = [pytest.mark.integration, pytest.mark.long]

LOADED_S = 10.0
SETTLED_S = 2.0
"""The generator makes its topic before it sends."""
CALL_EVERY_S = 0.01
P99_MAX_MS = 50.0
LOAD_MIN_PER_S = {1: 5_000, 150: 1_000, 9_000: 20}
"""Records of a request -> requests per second, below which nobody can speak of load."""
GENERATOR_NICE = 10
CALLS_MIN = 200


@pytest.mark.parametrize("work", raw_frames.WORK[:3], ids=lambda work: f"{work.records}-records")
def test_the_control_plane_answers_while_the_data_plane_is_full(
    start_cluster: Start, tmp_path: Path, work: raw_frames.Raw
) -> None:
    cluster = start_cluster(brokers=1)
    peer = HeadwaterPeer(cluster.directory, bootstrap=cluster.bootstrap, pids=[cluster.pid(0)])
    load = partial(raw_frames.run_raw, peer, work, LOADED_S, tmp_path, nice=GENERATOR_NICE)
    with ThreadPoolExecutor(1) as pool:
        generator = pool.submit(load)
        time.sleep(SETTLED_S)
        times_ms = call_for(cluster.spec.slot(0).control_address, LOADED_S - 2 * SETTLED_S)
        rate = generator.result().rate
    times_ms.sort()
    p50, p99 = times_ms[len(times_ms) // 2], times_ms[len(times_ms) * 99 // 100]
    story = (
        f"{len(times_ms)} calls: p50 {p50:.1f} ms, p99 {p99:.1f} ms, worst {times_ms[-1]:.1f} ms"
    )
    print(f"{work.name}: {story}, beside {rate:,.0f} requests/s")
    assert rate > LOAD_MIN_PER_S[work.records], f"no load: {rate:.0f} requests/s"
    assert len(times_ms) > CALLS_MIN, story
    assert p99 < P99_MAX_MS, story


def call_for(address: str, seconds: float) -> list[float]:
    """Ask the broker for what its loop must answer, at a pace; each call's milliseconds."""
    times_ms = []
    end = time.monotonic() + seconds
    with ControlClient(address) as client:
        while time.monotonic() < end:
            started = time.monotonic()
            assert client.status().ready
            times_ms.append((time.monotonic() - started) * 1e3)
            time.sleep(CALL_EVERY_S)
    return times_ms
