"""Writes docs/kafka-tools.md by running every use of Kafka's tools: `make docs-tools` (minutes).

Names of uses as arguments run only these, and write nothing: `make docs-tools ARGS="topics"`.
"""

from __future__ import annotations

import difflib
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from peers import KAFKA_VERSION

from docs_pages import DOCS, table
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.kafka_tools import NOT_SERVED, USES, Use
from integration.tool_bench import Bench

PAGE = DOCS / "kafka-tools.md"
WORKS = "yes"
HEAD = f"""# Kafka's own command-line tools

The tools of Apache Kafka {KAFKA_VERSION}, unchanged, against three Headwater brokers.
`make docs-tools` runs every row and writes this page; `make integration` runs a part of them.

"""


def page(results: dict[str, str]) -> str:
    """The page; `results` holds each use's outcome by its function's name."""
    rows = [(f"`{use.script}`", use.what, results.get(use.run.__name__, "not run")) for use in USES]
    rows += [(f"`{script}`", why, "no") for script, why in NOT_SERVED]
    return HEAD + table(("tool", "what was run", "works"), iter(rows)) + "\n"


def outcome(use: Use, bench: Bench) -> str:
    """`yes`, or the first words of what went wrong."""
    try:
        use.run(bench)
    except (AssertionError, RuntimeError, OSError) as error:
        words = " ".join(str(error).split()).replace("|", "/")
        return f"no: {words[:200]}"
    return WORKS


def unknown_uses(names: Iterable[str]) -> str:
    """What to tell of names that no use has, with those that are meant or all; empty without."""
    known = [use.run.__name__ for use in USES]
    told = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2)
            remedy = f"did you mean {' or '.join(near)}?" if near else f"give {', '.join(known)}"
            told.append(f"docs-tools: no use of a tool is named {name!r}: {remedy}")
    return "\n".join(told)


def main(names: list[str]) -> int:
    """Run all, or those named; 1 when something does not work, 2 for a name that is none."""
    if told := unknown_uses(names):
        print(told, file=sys.stderr)
        return 2
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="kafka-tools-") as name:
        folder = Path(name)
        with LocalCluster(folder / "cluster", next_base_port(folder)) as cluster:
            for use in (u for u in USES if not names or u.run.__name__ in names):
                found = results[use.run.__name__] = outcome(use, Bench(cluster, folder))
                print(f"{use.script}: {use.what}: {found}", flush=True)
    if not names:
        PAGE.write_text(page(results))
    return 0 if set(results.values()) == {WORKS} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
