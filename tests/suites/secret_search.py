"""Searches what a secure cluster leaves behind for each of its secrets.

make suite-secrets ARGS="--dir D --also demo-out --also /tmp/spark-events"
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from headwater.testing.secret_search import search, secrets_of


def main() -> int:
    """1 when a secret was found."""
    parser = argparse.ArgumentParser(description=__doc__, prog="secret_search")
    parser.add_argument("--dir", type=Path, required=True, help="the cluster's folder")
    parser.add_argument("--also", type=Path, action="append", default=[], help="more folders")
    parser.add_argument(
        "--secret", action="append", default=[], metavar="FILE", help="one more secret, in a file"
    )
    given = parser.parse_args()
    directory = given.dir.resolve()
    more = {f"the secret of {name}": Path(name).read_text().strip() for name in given.secret}
    secrets = {**secrets_of(directory), **more}
    found, count = search(directory, secrets, given.also)
    for finding in found:
        print(f"{finding.place}: {finding.secret}")
    print(f"{len(secrets)} secrets, {count} places: {len(found)} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
