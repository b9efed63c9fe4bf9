"""Tier topics from a Spark application: `spark-submit jobs/tier.py TOPIC... --master ...`.

The same as `headwater tier run`, for schedulers that submit scripts.
"""

from __future__ import annotations

import sys

from headwater_spark.tiering.command import run

if __name__ == "__main__":
    sys.exit(run.main(sys.argv[1:], prog_name="tier", standalone_mode=False) or 0)
