"""Settings of all tests: a busy machine fails no example of a property, and each run tries the same
examples. `--hypothesis-profile=random` tries others. The collector skips the tests.
"""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

slow = [HealthCheck.too_slow]
settings.register_profile("random", deadline=None, suppress_health_check=slow)
settings.register_profile("same", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile("same")


def pytest_collection_finish() -> None:
    """Ten thousand tests and their modules stay to the end: no collection need look at them."""
    gc.collect()
    gc.freeze()
