"""A process that follows a topic of `typed_topic` until it is killed: `FOLDER CONFIGS`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.system import SystemClock
from headwater_tier.typed.follow_log import follow_topic
from headwater_tier.typed.without_registry import WithoutRegistry
from tier_log import location_at

PAUSE_S = 0.05


def main() -> None:
    """Turn after turn; another writer's commit is no reason to end."""
    folder, configs = Path(sys.argv[1]), json.loads(sys.argv[2])
    while True:
        try:
            follow_topic(location_at(folder, "orders"), configs, WithoutRegistry(), SystemClock())
        except HeadwaterError as error:
            print(error, flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
