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
from differential.group_cases import GROUP_CASES
from differential.partition_cases import PARTITION_CASES
from differential.servers import kafka, run_cases

ANSWERS = Path(__file__).parent / "kafka-answers.json"
CASES = (*COORDINATOR_CASES, *PARTITION_CASES, *GROUP_CASES)


def recorded() -> dict[str, list[Any]]:
    """Kafka's answers, by case."""
    found: dict[str, list[Any]] = json.loads(ANSWERS.read_text())
    return found


def asked(folder: Path) -> dict[str, list[Any]]:
    """Kafka's answers of now."""
    with kafka(folder) as exchange:
        return run_cases(exchange, CASES)


def main() -> None:
    """Write the answers, one line per case."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        answers = asked(Path(folder) / "kafka")
    rows = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in answers.items())
    ANSWERS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    print(f"{len(answers)} cases in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
