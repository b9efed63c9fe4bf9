"""Tier topics from a Spark application: `spark-submit --master M jobs/tier.py TOPIC...`.

The same as `headwater tier run`, for schedulers that submit scripts.
"""

from __future__ import annotations

import sys

from headwater.cli.main import run_command
from headwater_spark.tiering.command import run

if __name__ == "__main__":
    sys.exit(run_command(run, name="tier"))
