"""Ask Apache Kafka all cases and store its answers.

python -m differential.record
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from differential.coordinator_cases import COORDINATOR_CASES
from differential.exhausted_cases import EXHAUSTED_CASES
from differential.group_cases import GROUP_CASES
from differential.partition_cases import PARTITION_CASES
from differential.servers import kafka, run_cases
from differential.session import Case

ANSWERS = Path(__file__).parent / "kafka-answers.json"
EXHAUSTED = Path(__file__).parent / "kafka-exhausted.json"
"""Apart: to use up the epochs of a producer id takes some 10 s each."""
CASES = (*COORDINATOR_CASES, *PARTITION_CASES, *GROUP_CASES)


def recorded(path: Path = ANSWERS) -> dict[str, list[Any]]:
    """Kafka's answers, by case."""
    found: dict[str, list[Any]] = json.loads(path.read_text())
    return found


def asked(folder: Path, cases: tuple[Case, ...] = CASES) -> dict[str, list[Any]]:
    """Kafka's answers of now."""
    with kafka(folder) as exchange:
        return run_cases(exchange, cases)


def main() -> None:
    """Write the answers, one line per case."""
    for path, cases in ((ANSWERS, CASES), (EXHAUSTED, EXHAUSTED_CASES)):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            answers = asked(Path(folder) / "kafka", cases)
        rows = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in answers.items())
        path.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        print(f"{len(answers)} cases in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
