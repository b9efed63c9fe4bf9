"""Print where Headwater's answers differ from Kafka's recorded ones, and are not meant to.

python -m differential.compare [part of a case's name]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from differential.differences import wanted
from differential.record import CASES, recorded
from differential.servers import headwater, run_cases


def main() -> None:
    """Run the chosen cases, or all."""
    chosen = tuple(c for c in CASES if all(word in c.name for word in sys.argv[1:]))
    with tempfile.TemporaryDirectory() as folder, headwater(Path(folder)) as exchange:
        found = run_cases(exchange, chosen)
    kafka = recorded()
    count = 0
    for case in chosen:
        expected = {**dict(enumerate(kafka[case.name])), **wanted(case.name)}
        for number, answer in enumerate(found[case.name]):
            if answer != expected[number]:
                count += 1
                print(f"{case.name}\n  {number} {case.steps[number]}")
                print(f"    expected  {expected[number]}\n    headwater {answer}")
    print(f"{count} differences in {len(chosen)} cases")


if __name__ == "__main__":
    main()
