"""What holds for every test: no example of a property may fail for the machine being busy, and each
run tries the same examples. Others are tried with `--hypothesis-profile=random`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

slow = [HealthCheck.too_slow]
settings.register_profile("random", deadline=None, suppress_health_check=slow)
settings.register_profile("same", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile("same")
